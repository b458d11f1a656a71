#!/usr/bin/env python3
"""How long files are. Above the aim (header 200 lines, source 400) a warning; above 800 an error.

usage: sizes_check.py ROOT [BUILD_DIR] | --self-test
tests/sizes_allow.txt lists what may be longer, one `path reason...` a line; a line that is not needed is an error.
"""
import pathlib
import sys
import tempfile
import unittest

AIM = {".h": 200, ".inc": 400, ".cc": 400, ".py": 400}
STOP = 800
FOLDERS = ("include", "src", "apps", "examples", "python", "tests", "tools")
ALLOW = "tests/sizes_allow.txt"


def read_allowed(root):
    """Returns {path: reason} and the errors of the allow list."""
    allowed, errors = {}, []
    file = root / ALLOW
    for number, line in enumerate(file.read_text().splitlines() if file.exists() else [], 1):
        if not line.strip() or line.startswith("#"):
            continue
        path, _, reason = line.partition(" ")
        if not reason.strip():
            errors.append(f"{ALLOW}:{number}: {path} has no reason")
        allowed[path] = reason.strip()
    return allowed, errors


def check(root):
    """Returns (errors, warnings) of the tree at `root`."""
    allowed, errors = read_allowed(root)
    warnings = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in AIM or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            lines = len(file.read_text(encoding="utf-8").splitlines())
            if lines > STOP:
                if allowed.pop(path, None) is None:
                    errors.append(f"{path}: {lines} lines, more than {STOP}: split it, or give a reason in {ALLOW}")
            elif lines > AIM[file.suffix]:
                warnings.append(f"{path}: {lines} lines; the aim is {AIM[file.suffix]}")
    errors += [f"{ALLOW}: {path} is not longer than {STOP} lines, or not there" for path in allowed]
    return errors, warnings


class SelfTest(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return check(root)

    def test_short(self):
        self.assertEqual(([], []), self.run_on({"src/kv/a.h": "\n" * 200, "src/kv/a.cc": "\n" * 400}))

    def test_aims(self):
        errors, warnings = self.run_on({"src/kv/a.h": "\n" * 201, "src/kv/a.cc": "\n" * 401, "src/kv/b.cc": "\n" * 800})
        self.assertEqual([], errors)
        self.assertEqual(3, len(warnings))

    def test_stop(self):
        errors, _ = self.run_on({"src/kv/a.cc": "\n" * 801})
        self.assertEqual(1, len(errors))

    def test_allowed(self):
        errors, _ = self.run_on({"src/kv/a.cc": "\n" * 801, ALLOW: "# why\nsrc/kv/a.cc one table of 900 rows\n"})
        self.assertEqual([], errors)

    def test_allow_list_stays_true(self):
        errors, _ = self.run_on({"src/kv/a.cc": "\n" * 801, ALLOW: "src/kv/a.cc\nsrc/kv/gone.cc it was long\n"})
        self.assertEqual(2, len(errors))


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    problems, hints = check(pathlib.Path(sys.argv[1]))
    print("\n".join([f"warning: {hint}" for hint in hints] + problems) or "sizes: ok")
    sys.exit(1 if problems else 0)
