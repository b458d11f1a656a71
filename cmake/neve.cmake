# Everything that CMakeLists.txt calls: flags, where llama.cpp is, libraries by folder, tests by folder.
include_guard()
include(GNUInstallDirs)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)  # the Python bindings link the same archives
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(NEVE_CCACHE ccache)
if(NEVE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${NEVE_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${NEVE_CCACHE})
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

if(DEFINED ENV{NEVE_CACHE})
  set(NEVE_CACHE_DIR "$ENV{NEVE_CACHE}")
else()
  set(NEVE_CACHE_DIR "$ENV{HOME}/.cache/neve")
endif()

# --- Flags ----------------------------------------------------------------------------------------------------------
# One interface target carries what every translation unit of ours needs.
add_library(neve_flags INTERFACE)
target_compile_definitions(neve_flags INTERFACE NEVE_VERSION="${PROJECT_VERSION}")
# a*b+c is never fused behind our back: integer and float results are the same bits whatever the compiler's mood.
target_compile_options(neve_flags INTERFACE -ffp-contract=off -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wold-style-cast)
if(NEVE_WERROR)
  target_compile_options(neve_flags INTERFACE -Werror)
endif()
if(NEVE_SANITIZE)
  target_compile_options(neve_flags INTERFACE -fsanitize=${NEVE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(neve_flags INTERFACE -fsanitize=${NEVE_SANITIZE})
endif()
if(NEVE_FUZZ)
  target_compile_options(neve_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Instruction sets by file suffix. Everything else is compiled for the baseline of the architecture: a program built
# here must start anywhere and choose at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(NEVE_ISAS scalar avx2 avx512)
  set(NEVE_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(NEVE_FLAGS_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c
      -mprefer-vector-width=512)
  # GCC 12 takes _mm256_undefined_si256 and its kin, inside its own intrinsics, for mistakes of ours.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND NEVE_FLAGS_avx2 -Wno-uninitialized -Wno-maybe-uninitialized)
    list(APPEND NEVE_FLAGS_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(NEVE_ISAS scalar neon)
  set(NEVE_FLAGS_neon -march=armv8.2-a+dotprod+fp16)
else()
  set(NEVE_ISAS scalar)
endif()

# --- llama.cpp ------------------------------------------------------------------------------------------------------
# Looks at NEVE_LLAMA_PREFIX (cache variable, then environment), at what tools/setup built, then at the system.
# Sets NEVE_HAVE_LLAMA.
macro(neve_find_llama)
  set(NEVE_HAVE_LLAMA OFF)
  if(NOT NEVE_WITH_LLAMA STREQUAL "OFF")
    set(neve_llama_current "${NEVE_CACHE_DIR}/llama/current")
    if(NEVE_LLAMA_PREFIX)
      set(neve_llama_root "${NEVE_LLAMA_PREFIX}")
    elseif(DEFINED ENV{NEVE_LLAMA_PREFIX})
      set(neve_llama_root "$ENV{NEVE_LLAMA_PREFIX}")
    elseif(EXISTS "${neve_llama_current}/lib")
      set(neve_llama_root "${neve_llama_current}")
      neve_check_llama_key("${neve_llama_current}")
    else()
      set(neve_llama_root "")
    endif()
    # Looked up afresh each time: a place remembered from an earlier configuration may be another machine's build.
    unset(llama_DIR CACHE)
    unset(ggml_DIR CACHE)
    unset(llama_LIBRARY CACHE)
    if(neve_llama_root)
      find_package(llama QUIET PATHS "${neve_llama_root}" NO_DEFAULT_PATH)
      list(PREPEND CMAKE_PREFIX_PATH "${neve_llama_root}")
    endif()
    find_package(llama QUIET)
    if(llama_FOUND)
      set(NEVE_HAVE_LLAMA ON)
      message(STATUS "llama.cpp ${LLAMA_VERSION}, ggml ${GGML_VERSION}: ${llama_DIR}")
    elseif(NEVE_WITH_LLAMA STREQUAL "AUTO")
      message(STATUS "llama.cpp not found: only the core is built")
    else()
      message(FATAL_ERROR
        "llama.cpp not found (looked at NEVE_LLAMA_PREFIX, ${neve_llama_current} and the system).\n"
        "Run tools/setup, which finds or builds it; or set NEVE_LLAMA_PREFIX to an install of it; or build only the "
        "core with -DNEVE_WITH_LLAMA=OFF.")
    endif()
  endif()
endmacro()

# llama.cpp is built for one CPU. A cache folder that came from another machine must not be used.
function(neve_check_llama_key prefix)
  if(NOT EXISTS "${prefix}/neve-key")
    message(WARNING "${prefix} carries no key of the CPU it was built for; tools/setup makes a build that does")
    return()
  endif()
  file(STRINGS "${prefix}/neve-key" have LIMIT_COUNT 1)
  execute_process(COMMAND "${PROJECT_SOURCE_DIR}/tools/setup" --llama-key
                  OUTPUT_VARIABLE want OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE rc)
  if(rc EQUAL 0 AND NOT have STREQUAL want)
    message(FATAL_ERROR
      "The llama.cpp in ${prefix} was built for another CPU, compiler or version (${have}; wanted ${want}). "
      "Run tools/setup.")
  endif()
endfunction()

# --- Sources by folder ----------------------------------------------------------------------------------------------
# neve_sources(OUT FOLDER): the library sources below a folder: no tests, benchmarks, fuzz targets, and no files of an
# instruction set that this architecture lacks. Gives variant files their flags.
function(neve_sources out folder)
  file(GLOB_RECURSE all CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*.cc")
  list(FILTER all EXCLUDE REGEX "_(test|bench|fuzz)\\.cc$")
  set(mine "")
  foreach(file IN LISTS all)
    if(file MATCHES "_(avx2|avx512|neon)\\.cc$")
      set(isa ${CMAKE_MATCH_1})
      if(NOT isa IN_LIST NEVE_ISAS)
        continue()
      endif()
      set_source_files_properties("${file}" PROPERTIES COMPILE_OPTIONS "${NEVE_FLAGS_${isa}}")
    endif()
    list(APPEND mine "${file}")
  endforeach()
  set(${out} "${mine}" PARENT_SCOPE)
endfunction()

# neve_library(NAME FOLDERS a b ...): a static library of src/a, src/b, ... Without any source yet it is an interface
# library; NAME_SCOPE says with which keyword to link to it.
function(neve_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS")
  set(sources "")
  foreach(folder IN LISTS arg_FOLDERS)
    neve_sources(found src/${folder})
    list(APPEND sources ${found})
  endforeach()
  if(sources)
    set(scope PUBLIC)
    add_library(${name} STATIC ${sources})
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(${name} PRIVATE neve_flags)
  else()
    set(scope INTERFACE)
    add_library(${name} INTERFACE)
  endif()
  target_include_directories(${name} ${scope} "${PROJECT_SOURCE_DIR}/include")
  set(${name}_SCOPE ${scope} PARENT_SCOPE)
endfunction()

# neve_program(TARGET FOLDER LIBRARY): build/<preset>/bin/neve. Sees include/ only, never src/.
function(neve_program target folder library)
  neve_sources(sources ${folder})
  if(NOT sources)
    return()
  endif()
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
  add_executable(${target} ${sources})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME neve)
  target_link_libraries(${target} PRIVATE neve_flags ${library} CLI11::CLI11 nlohmann_json::nlohmann_json)
  # DT_RPATH, not DT_RUNPATH: it also holds for what libllama itself loads.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# --- Tests ----------------------------------------------------------------------------------------------------------
# GoogleTest of the system; when cross-compiling, built from Debian's source package `googletest`.
if(NEVE_TESTS)
  if(CMAKE_CROSSCOMPILING)
    set(NEVE_GTEST_SOURCE /usr/src/googletest CACHE PATH "GoogleTest's source, for cross builds")
    if(NOT EXISTS "${NEVE_GTEST_SOURCE}/CMakeLists.txt")
      message(FATAL_ERROR "GoogleTest's source is not in ${NEVE_GTEST_SOURCE}: run tools/setup --dev")
    endif()
    set(INSTALL_GTEST OFF)
    set(BUILD_GMOCK OFF)
    add_subdirectory("${NEVE_GTEST_SOURCE}" "${CMAKE_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
    if(NOT TARGET GTest::gtest_main)
      add_library(GTest::gtest_main ALIAS gtest_main)
    endif()
  else()
    find_package(GTest REQUIRED)
  endif()
  include(GoogleTest)
endif()

# neve_tests(TARGET FOLDER PREFIX LIBRARY): one executable of all *_test.cc below FOLDER. A suite or test with `Slow` in
# its name gets the label slow, one with `Manual` the label manual, all others fast.
function(neve_tests target folder prefix library)
  if(NOT NEVE_TESTS)
    return()
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${folder}/*_test.cc")
  if(NOT sources)
    return()
  endif()
  add_executable(${target} ${sources})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_compile_definitions(${target} PRIVATE
    NEVE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" NEVE_MODEL_DIR="${NEVE_CACHE_DIR}/models")
  if(TARGET neve_cli)
    target_compile_definitions(${target} PRIVATE NEVE_PROGRAM="$<TARGET_FILE:neve_cli>")
    add_dependencies(${target} neve_cli)
  endif()
  target_link_libraries(${target} PRIVATE neve_flags ${library} GTest::gtest_main)
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set(common WORKING_DIRECTORY "${CMAKE_BINARY_DIR}" TEST_PREFIX "${prefix}" DISCOVERY_MODE PRE_TEST
      DISCOVERY_TIMEOUT 60)
  gtest_discover_tests(${target} ${common} TEST_LIST ${target}_fast TEST_FILTER "-*Slow*:*Manual*"
                       PROPERTIES LABELS fast)
  gtest_discover_tests(${target} ${common} TEST_LIST ${target}_slow TEST_FILTER "*Slow*-*Manual*"
                       PROPERTIES LABELS slow TIMEOUT 3600)
  gtest_discover_tests(${target} ${common} TEST_LIST ${target}_manual TEST_FILTER "*Manual*"
                       PROPERTIES LABELS manual TIMEOUT 36000)
endfunction()

# neve_folder_tests(FOLDER LIBRARY): tests, benchmarks and fuzz targets of src/FOLDER. The fast tests of a folder in
# NEVE_ISA_FOLDERS run once more per instruction set, as <folder>@<isa>; a set that the machine lacks shows as skipped.
function(neve_folder_tests folder library)
  neve_tests(test_${folder} src/${folder} "${folder}." ${library})
  if(TARGET test_${folder} AND folder IN_LIST NEVE_ISA_FOLDERS)
    foreach(isa IN LISTS NEVE_ISAS)
      add_test(NAME ${folder}@${isa} WORKING_DIRECTORY "${CMAKE_BINARY_DIR}"
               COMMAND "${PROJECT_SOURCE_DIR}/tests/with_isa" ${isa} ${CMAKE_CROSSCOMPILING_EMULATOR}
                       $<TARGET_FILE:test_${folder}> --gtest_brief=1 --gtest_filter=-*Slow*:*Manual*)
      set_tests_properties(${folder}@${isa} PROPERTIES LABELS fast SKIP_RETURN_CODE 77)
    endforeach()
  endif()

  if(NEVE_BENCH)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*_bench.cc")
    if(sources)
      find_package(benchmark REQUIRED)
      add_executable(bench_${folder} ${sources})
      target_include_directories(bench_${folder} PRIVATE "${PROJECT_SOURCE_DIR}/src")
      target_link_libraries(bench_${folder} PRIVATE neve_flags ${library} benchmark::benchmark_main)
      target_link_options(bench_${folder} PRIVATE -Wl,--disable-new-dtags)
    endif()
  endif()

  if(NEVE_FUZZ)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*_fuzz.cc")
    foreach(source IN LISTS sources)
      cmake_path(GET source STEM name)
      add_executable(${name} ${source})
      target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src")
      target_link_libraries(${name} PRIVATE neve_flags ${library} -fsanitize=fuzzer)
      # What it finds stays in the build folder; testdata/fuzz/<name>/ is where it starts, if there is such a folder.
      file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/corpus/${name}")
      set(seeds "")
      if(IS_DIRECTORY "${PROJECT_SOURCE_DIR}/testdata/fuzz/${name}")
        set(seeds "${PROJECT_SOURCE_DIR}/testdata/fuzz/${name}")
      endif()
      add_test(NAME fuzz.${name} COMMAND ${name} -max_total_time=20 -timeout=10 -rss_limit_mb=2048
               "${CMAKE_BINARY_DIR}/corpus/${name}" ${seeds})
      set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 120)
    endforeach()
  endif()
endfunction()

# neve_program_tests(TARGET): tests/*_test.py PROGRAM MODELS_FOLDER: transcripts of the program. Each is a fast test, and
# with --slow a slow one that loads models.
function(neve_program_tests program)
  if(NOT NEVE_TESTS OR NOT TARGET ${program})
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  file(GLOB scripts CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*_test.py")
  foreach(script IN LISTS scripts)
    cmake_path(GET script STEM name)
    string(REGEX REPLACE "_test$" "" name "${name}")
    set(command Python3::Interpreter "${script}" $<TARGET_FILE:${program}> "${NEVE_CACHE_DIR}/models")
    add_test(NAME tests.${name} COMMAND ${command})
    add_test(NAME tests.${name}.slow COMMAND ${command} --slow)
    set_tests_properties(tests.${name} PROPERTIES LABELS fast)
    set_tests_properties(tests.${name}.slow PROPERTIES LABELS slow TIMEOUT 3600)
  endforeach()
endfunction()

# --- Checks of the source tree --------------------------------------------------------------------------------------
# Each tests/*_check.py runs twice: on itself (made-up trees, to know that it fails when it should) and on this tree.
function(neve_checks)
  if(NOT NEVE_CHECKS)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  file(GLOB checks CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*_check.py")
  foreach(check IN LISTS checks)
    cmake_path(GET check STEM name)
    string(REGEX REPLACE "_check$" "" name "${name}")
    add_test(NAME check.${name}.self COMMAND Python3::Interpreter "${check}" --self-test)
    add_test(NAME check.${name} COMMAND Python3::Interpreter "${check}" "${PROJECT_SOURCE_DIR}" "${CMAKE_BINARY_DIR}")
    set_tests_properties(check.${name}.self check.${name} PROPERTIES LABELS fast SKIP_RETURN_CODE 77)
  endforeach()
endfunction()
