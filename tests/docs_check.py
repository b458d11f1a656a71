#!/usr/bin/env python3
"""What the documents say exists: paths, links, presets, flags, environment variables.

usage: docs_check.py ROOT [BUILD_DIR] | --self-test
Reads README.md, CONTRIBUTING.md and docs/. In code (backticks and fenced blocks) it looks at
- paths that start with a folder of the tree: must exist; `*` is a pattern that must match something; a path with a
  placeholder (`<name>`, `$X`, `{a,b}`) is not looked at;
- `neve SUBCOMMAND --flag` and `tools/x --flag`: must stand in the sources of the program or in the script;
- `cmake|ctest --preset P`: must be in CMakePresets.json;
- NEVE_...: must be read somewhere.
In all text of the tree: no absolute path of somebody's machine.
"""
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

TOPS = "src|include|apps|python|examples|tests|testdata|docs|tools|cmake|\\.ci"
PATH = re.compile(rf"(?<![\w./~$}}>-])(?:\./)?((?:{TOPS})/[\w./*@+-]*)")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
MACHINE = re.compile(r"(?<![\w.~$}-])/(?:home|root|work|Users|mnt)/\w+")
FENCE = re.compile(r"^```.*?^```[ \t]*$", re.S | re.M)
SPAN = re.compile(r"`([^`\n]+)`")
NEVE = re.compile(r"^\s*\$?\s*(?:[A-Z_]+=\S+\s+)*(?:build/\w+/bin/)?neve\s+([a-z]\w*)(.*)$")
TOOL = re.compile(r"(tools/\w+)((?:\s+-\S+)+)")
PRESET = re.compile(r"\b(cmake|ctest)\s+(--build\s+)?(?:\S+\s+)*?--preset[= ]([\w-]+)")
FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
TEXT = {".md", ".h", ".cc", ".inc", ".py", ".cmake", ".txt", ".json", ".yml", ".toml", ""}
SKIP = {"build", ".git", "__pycache__"}


def code_of(markdown):
    """The code of a document as lines; a line continued with a backslash is one."""
    fenced = FENCE.findall(markdown)
    lines = [line for block in fenced for line in block.replace("\\\n", " ").splitlines()[1:-1]]
    return lines + SPAN.findall(FENCE.sub("", markdown))


def read_all(root, folders, suffixes):
    texts = []
    for folder in folders:
        for file in sorted((root / folder).rglob("*")):
            if file.is_file() and file.suffix in suffixes and not SKIP & set(file.relative_to(root).parts):
                texts.append(file.read_text(encoding="utf-8", errors="replace"))
    return "\n".join(texts)


def text_files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - SKIP)
        for file in (pathlib.Path(folder) / name for name in sorted(names)):
            if file.suffix in TEXT and file.is_file() and file.stat().st_size < 1 << 20:
                yield file


def slugs(markdown):
    """The anchors of a document, as GitHub makes them."""
    heads = re.findall(r"^#+\s+(.*?)\s*$", FENCE.sub("", markdown), re.M)
    return {re.sub(r"[^\w\- ]", "", head.replace("`", "").lower()).replace(" ", "-") for head in heads}


class Tree:
    def __init__(self, root):
        self.root = root
        self.program = read_all(root, ["apps"], {".cc", ".h"})
        self.sources = read_all(root, ["src", "apps", "tools", "tests", "cmake", "python", "include", ".ci"], TEXT)
        lists = root / "CMakeLists.txt"
        self.sources += lists.read_text() if lists.exists() else ""
        presets = root / "CMakePresets.json"
        self.presets = json.loads(presets.read_text()) if presets.exists() else {}

    def has_preset(self, kind, name):
        return any(p["name"] == name and not p.get("hidden") for p in self.presets.get(kind, []))

    def judge_code(self, line):
        """What is wrong with a line of code in a document."""
        for match in PATH.finditer(line):
            path = match[1].rstrip(".")
            rest = line[match.end(1):]
            if re.match(r"[<{$]", rest):
                continue
            if not (any(self.root.glob(path.rstrip("/"))) if "*" in path else (self.root / path).exists()):
                yield f"there is no {path}"
        match = NEVE.match(line)
        if match:
            if f'"{match[1]}"' not in self.program:
                yield f"the program has no subcommand {match[1]}"
            for flag in FLAG.findall(match[2]):
                if not re.search(rf'[",]{flag}\b(?!-)', self.program):
                    yield f"the program has no {flag}"
        for match in TOOL.finditer(line):
            script = self.root / match[1]
            text = script.read_text() if script.is_file() else ""
            for flag in FLAG.findall(match[2]):
                if not re.search(rf"{flag}(?![\w-])", text):
                    yield f"{match[1]} has no {flag}"
        for match in PRESET.finditer(line):
            kind = "testPresets" if match[1] == "ctest" else "buildPresets" if match[2] else "configurePresets"
            if not self.has_preset(kind, match[3]):
                yield f"CMakePresets.json has no preset {match[3]} in {kind}"
        for name in re.findall(r"\bNEVE_[A-Z_]*[A-Z]\b", line):
            if not re.search(rf"\b{name}\b", self.sources):
                yield f"nothing reads {name}"

    def judge_link(self, document, target, text):
        """What is wrong with a link in a document."""
        if re.match(r"[a-z]+:", target):
            return
        path, _, anchor = target.partition("#")
        file = (document.parent / path) if path else document
        if not file.exists():
            yield f"the link {target} leads nowhere"
        elif anchor and file.suffix == ".md" and anchor not in slugs(file.read_text(encoding="utf-8") if path else text):
            yield f"the link {target}: no such heading"


def check(root):
    """Returns the errors of the tree at `root`."""
    tree, errors = Tree(root), []
    documents = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    for document in documents:
        if not document.exists():
            continue
        text = document.read_text(encoding="utf-8")
        name = document.relative_to(root)
        for line in code_of(text):
            errors += [f"{name}: {problem}" for problem in tree.judge_code(line)]
        for match in LINK.finditer(FENCE.sub("", text)):
            errors += [f"{name}: {problem}" for problem in tree.judge_link(document, match[1] or match[2], text)]
    for file in text_files(root):
        path = file.relative_to(root)
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            match = MACHINE.search(line)
            if match:
                errors.append(f"{path}:{number}: a path of somebody's machine: {match[0]}")
    return errors


class SelfTest(unittest.TestCase):
    TREE = {
        "apps/neve/run.cc": 'app.add_subcommand("run"); o("-m,--model"); o("--budget", x);',
        "src/kv/a_avx2.cc": 'getenv("NEVE_ISA")',
        "tools/setup": "--dev)",
        "docs/a.md": "# A heading: `x` y\n",
        "CMakePresets.json": '{"configurePresets": [{"name": "dev"}], "testPresets": [{"name": "dev-fast"}]}',
    }

    def errors(self, readme, **more):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in {**self.TREE, "README.md": readme, **more}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
            return check(root)

    def test_good(self):
        self.assertEqual([], self.errors(
            "See `src/kv/`, `src/*/*_avx2.cc`, `src/<folder>/x.cc`, [a](docs/a.md#a-heading-x-y), [top](#head).\n# Head\n"
            "`NEVE_ISA=avx2`, `~/src/other`, [web](https://example.org/docs/none.md)\n"
            "```sh\ntools/setup --dev\ncmake --preset dev\nctest --preset dev-fast\n"
            "build/release/bin/neve run -m a.gguf \\\n  --budget 16MiB\n```\n"))

    def test_bad(self):
        for text, wanted in [
            ("`src/kv/none.h`", "there is no src/kv/none.h"),
            ("`src/kv/*_neon.cc`", "there is no src/kv/*_neon.cc"),
            ("[a](docs/none.md)", "leads nowhere"),
            ("![a](docs/none.png)", "leads nowhere"),
            ("[a](docs/a.md#none)", "no such heading"),
            ("```\nneve fly -m a\n```", "no subcommand fly"),
            ("```\nneve run --budge 3\n```", "has no --budge"),
            ("`tools/setup --fast`", "tools/setup has no --fast"),
            ("`cmake --preset dev-fast`", "no preset dev-fast in configurePresets"),
            ("`ctest --preset dev`", "no preset dev in testPresets"),
            ("`NEVE_NONE=1`", "nothing reads NEVE_NONE"),
            ("see /" + "home/me/x", "somebody's machine"),
        ]:
            with self.subTest(text=text):
                found = self.errors(text + "\n")
                self.assertEqual(1, len(found), found)
                self.assertIn(wanted, found[0])

    def test_machine_paths_in_sources(self):
        self.assertEqual(1, len(self.errors("", **{"src/kv/b.cc": '"/' + 'root/x"'})))


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    problems = check(pathlib.Path(sys.argv[1]).resolve())
    print("\n".join(problems) or "docs: ok")
    sys.exit(1 if problems else 0)
