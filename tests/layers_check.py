#!/usr/bin/env python3
"""Which folder may include which: reads the #include lines of src/, include/, apps/ and examples/.

usage: layers_check.py ROOT [BUILD_DIR] | --self-test
The tables below are the law (CONTRIBUTING.md, "The tree"); an arrow that is not in them is an error.
"""
import pathlib
import re
import sys
import tempfile
import unittest

# A folder of src/ -> the folders of src/ it may include, besides itself, include/neve and the standard library.
ARROWS = {
    "base": "",
    "tensor": "base",
    "simd": "base",
    "quant": "base tensor simd",
    "transform": "base tensor simd",
    "entropy": "base simd",
    "codec": "base tensor quant transform entropy",
    "container": "base",
    "profile": "base tensor",
    "kv": "base tensor simd quant transform",
    "recurrent": "base tensor simd quant transform",
    "store": "base tensor quant transform codec container profile kv recurrent",
    "model": "base tensor profile kv recurrent",
    "damage": "base tensor kv recurrent model",
    "calibrate": "base tensor simd quant transform entropy codec profile kv recurrent model damage",
    "eval": "base tensor quant transform entropy codec profile kv recurrent store model damage calibrate",
}
ARROWS = {folder: set(may.split()) for folder, may in ARROWS.items()}

# Headers of others, by pattern -> the places that may include them. A header in no pattern is an error: add it here.
TESTS = "tests"  # *_test.cc, *_bench.cc, *_fuzz.cc and the folder tests/
OTHERS = [
    (r"(ggml|gguf|llama)[\w-]*\.h", {"model", "calibrate"}),
    (r"CLI/.*", {"apps"}),
    (r"nlohmann/.*", {"apps", "eval"}),
    (r"httplib\.h", {"apps"}),
    (r"hiredis/.*", {"store"}),
    (r"(libdeflate|zstd)\.h", {"entropy"}),
    (r"xxhash\.h", {"base"}),
    (r"(cblas|lapacke|openblas/.*)(\.h)?", {"transform", "calibrate"}),
    (r"(gtest|gmock)/.*", {TESTS}),
    (r"benchmark/benchmark\.h", {TESTS}),
    # Intrinsics stay in the files whose flags allow them.
    (r"(immintrin|arm_neon|cpuid|arm_acle)\.h", {"simd", TESTS}),
    # The operating system.
    (r"(sys|linux|asm|netinet|arpa|net)/.*\.h", None),
    (r"(unistd|fcntl|pthread|sched|dirent|signal|poll|termios|dlfcn|spawn|stdlib|string|stdint|stddef)\.h", None),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')
VARIANT = re.compile(r"_(scalar|avx2|avx512|neon)\.cc$")
SUFFIXES = {".h", ".cc", ".inc"}


def place_of(path):
    """The folder that a file of the tree counts as; None for files that are not ours to judge."""
    top = path.parts[0]
    if top == "src":
        return path.parts[1] if len(path.parts) > 2 else "src"
    if top == "include":
        return "include"
    return top if top in ("apps", "examples") else None


def judge(root, path, quote, name):
    """What is wrong with `#include name` in the file `path`, or None."""
    place = place_of(path)
    is_test = re.search(r"_(test|bench|fuzz)\.cc$", path.name) is not None
    if name.startswith("neve/"):
        return None if (root / "include" / name).is_file() else "there is no such public header"
    first = name.split("/")[0]
    if quote == '"' and "/" in name and first in ARROWS:
        if not (root / "src" / name).is_file():
            return "there is no such file in src/"
        if place in ("include", "apps", "examples"):
            return f"{place}/ may include only include/neve of ours"
        if VARIANT.search(path.name) and not path.name.endswith("_scalar.cc"):
            if first != place or not re.search(r"(_kernels\.h|\.inc)$", name):
                return "a variant file may include of ours only its contract header (*_kernels.h) and *.inc of its folder"
        if first == place or first in ARROWS[place]:
            return None
        return f"{place}/ may not include {first}/"
    if quote == '"' and "/" not in name and (root / path.parent / name).is_file():
        return None if place in ("apps", "examples") else f'say "{place}/{name}", from src/'
    if quote == '"' and not any(re.fullmatch(pattern, name) for pattern, _ in OTHERS):
        return "there is no such file"
    if "/" not in name and "." not in name:
        return None  # the standard library
    for pattern, who in OTHERS:
        if re.fullmatch(pattern, name):
            if place == "include":
                return "include/ may include only itself and the standard library"
            if who is None or place in who or (is_test and TESTS in who):
                return None
            return f"only {', '.join(sorted(who))} may include it"
    return "unknown header: add it to OTHERS in tests/layers_check.py with who may use it"


def check(root):
    """Returns the errors of the tree at `root`."""
    errors = []
    for top in ("src", "include", "apps", "examples"):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root)
            place = place_of(path)
            if top == "src" and place not in ARROWS:
                errors.append(f"{path}: no such folder in the table of tests/layers_check.py")
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    error = judge(root, path, match[1], match[2])
                    if error:
                        errors.append(f"{path}:{number}: {match[2]}: {error}")
    return errors


class SelfTest(unittest.TestCase):
    def errors(self, files):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return check(root)

    def test_table_has_no_cycle(self):
        done = set()
        while len(done) < len(ARROWS):
            ready = {f for f, may in ARROWS.items() if f not in done and may <= done}
            self.assertTrue(ready, f"a cycle among {set(ARROWS) - done}")
            done |= ready

    def test_good(self):
        self.assertEqual([], self.errors({
            "include/neve/a.h": "#include <vector>\n",
            "src/base/b.h": '#include "neve/a.h"\n#include <sys/mman.h>\n',
            "src/kv/c.cc": '#include "base/b.h"\n#include "kv/c.h"\n#include <neve/a.h>\n',
            "src/kv/c.h": "", "src/kv/c_test.cc": "#include <gtest/gtest.h>\n",
            "src/simd/k_kernels.h": "", "src/simd/k_body.inc": "",
            "src/simd/k_avx2.cc": '#include "simd/k_kernels.h"\n#include <immintrin.h>\n#include "simd/k_body.inc"\n',
            "src/model/m.cc": "#include <ggml-backend.h>\n#include <llama.h>\n",
            "apps/neve/main.cc": '#include <CLI/CLI.hpp>\n#include "common.h"\n#include "neve/a.h"\n',
            "apps/neve/common.h": ""}))

    def test_bad(self):
        base = {"include/neve/a.h": "", "src/base/b.h": "", "src/kv/c.h": "", "src/simd/isa.h": ""}
        for path, text, wanted in [
            ("src/base/x.cc", '#include "kv/c.h"', "base/ may not include kv/"),
            ("src/kv/x.cc", '#include "kv/missing.h"', "no such file"),
            ("src/kv/x.cc", '#include "c.h"', 'say "kv/c.h"'),
            ("src/kv/x.cc", "#include <llama.h>", "only calibrate, model"),
            ("src/kv/x.cc", "#include <gtest/gtest.h>", "only tests"),
            ("src/kv/x.cc", "#include <immintrin.h>", "only simd"),
            ("src/kv/x.cc", "#include <boost/any.hpp>", "unknown header"),
            ("src/simd/x_avx2.cc", '#include "base/b.h"', "variant file"),
            ("src/simd/x_neon.cc", '#include "simd/isa.h"', "variant file"),
            ("src/misc/x.cc", "", "no such folder"),
            ("include/neve/x.h", '#include "base/b.h"', "include/ may include only"),
            ("include/neve/x.h", "#include <nlohmann/json.hpp>", "include/ may include only"),
            ("apps/neve/x.cc", '#include "kv/c.h"', "apps/ may include only"),
            ("apps/neve/x.cc", "#include <ggml.h>", "only calibrate, model"),
            ("apps/neve/x.cc", '#include "neve/missing.h"', "no such public header"),
        ]:
            with self.subTest(path=path, text=text):
                found = self.errors({**base, path: text + "\n"})
                self.assertEqual(1, len(found), found)
                self.assertIn(wanted, found[0])


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    problems = check(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) or "layers: ok")
    sys.exit(1 if problems else 0)
