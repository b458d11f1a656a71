#!/usr/bin/env python3
"""No code of an instruction set leaks out of its file.

An inline function or template in a header that a variant file (*_avx2.cc, ...) compiles becomes a weak symbol in its
object, made with that file's flags; the linker may pick it for everybody, and the program dies on an older CPU. So the
variant objects in libneve_core.a may define no weak symbol.

usage: isa_leak_check.py ROOT BUILD_DIR | --self-test     exits 77 (skipped) if there is no archive yet
"""
import pathlib
import re
import subprocess
import sys
import unittest

MEMBER = re.compile(r"^[^:]*:(?P<member>[^:]*_(?:avx2|avx512|neon)\.cc\.o(?:bj)?):\s*\S*\s*(?P<kind>[A-Za-z]) (?P<name>.*)$")


def leaks(nm_output):
    """The weak symbols ("W", "V", "u") of variant objects in the output of `nm -A -C --defined-only`."""
    matches = (MEMBER.match(line) for line in nm_output.splitlines())
    return [f"{m['member']}: {m['name']}" for m in matches if m and m["kind"] in "WVwvu"]


class SelfTest(unittest.TestCase):
    def test_leaks(self):
        text = ("lib/libx.a:k_avx2.cc.o:0000000000000000 T neve::k(float const*)\n"
                "lib/libx.a:k_avx2.cc.o:0000000000000010 t helper\n"
                "lib/libx.a:k_avx512.cc.o:0000000000000000 W float const& std::max<float>(float const&, float const&)\n"
                "lib/libx.a:k_scalar.cc.o:0000000000000000 W std::min\n")
        self.assertEqual(["k_avx512.cc.o: float const& std::max<float>(float const&, float const&)"], leaks(text))


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    archive = pathlib.Path(sys.argv[2]) / "lib" / "libneve_core.a"
    if not archive.exists():
        print(f"no {archive}: skipped")
        sys.exit(77)
    command = ["nm", "-A", "-C", "--defined-only", str(archive)]
    problems = leaks(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print("\n".join(f"weak symbol in {problem}" for problem in problems) or "isa leaks: none")
    sys.exit(1 if problems else 0)
