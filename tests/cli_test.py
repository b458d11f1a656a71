#!/usr/bin/env python3
"""Transcripts of the program: what is refused and how, exit codes, JSON that parses, keys that scripts rely on.

usage: cli_test.py PROGRAM MODELS_FOLDER [--slow] [unittest options]
Without --slow only what takes a second or two: no weights are loaded. Tests that want SmolLM2 skip where it is missing.
"""
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = None
MODEL = None
ROW_KEYS = {
    "run": """prompt_tokens new_tokens finish prefill_tokens_per_s decode_tokens_per_s kv_bytes kv_peak_bytes budget_bytes
              capacity_tokens bytes_by_rung tokens_generated_by_rung demotions step_ms_median step_ms_p99 step_ms_p999 text""",
    "plan": "kv tokens sequences bytes least_bytes weights_bytes layers",
    "bench attend": "engine kv head_dim gqa tokens bytes values_per_s",
    "bench decode": "engine kv depth sequences decode_tokens_per_s prefill_tokens_per_s kv_bytes",
    "eval kl": "engine kv state tokens bytes bits_per_value kl_mean kl_median kl_p99 top1 kl_by_position",
}


def neve(*arguments, env=None, stdin=None):
    """Runs the program; returns (exit code, stdout, stderr)."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=900,
                          stdin=subprocess.DEVNULL if stdin is None else None, input=stdin,
                          env={**os.environ, **(env or {})})
    return done.returncode, done.stdout, done.stderr


class Transcripts(unittest.TestCase):
    def refused(self, code, words, *arguments, env=None):
        """The program refuses with this exit code, says all the words on stderr in few lines and prints no result."""
        got, out, err = neve(*arguments, env=env)
        self.assertEqual(got, code, f"{arguments}: {err}")
        for word in words:
            self.assertIn(word, err, arguments)
        self.assertEqual(out, "", arguments)
        self.assertLessEqual(len(err.splitlines()), 4, err)

    def report(self, command, *arguments):
        """Runs with --json; returns the one object, after a look at its frame and at the keys of its rows."""
        code, out, err = neve(*command.split(), *arguments, "--json")
        self.assertEqual(code, 0, err)
        report = json.loads(out)
        self.assertEqual(report["command"], command)
        self.assertRegex(report["neve"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(sorted(report["machine"]), ["cpu", "isa", "threads"])
        self.assertIsInstance(report["options"], dict)
        for row in report["rows"]:
            self.assertLessEqual(set(ROW_KEYS.get(command, "").split()), set(row))
        self.assertNotIn("\x1b", err, "a progress bar on a pipe")
        return report

    def need_model(self):
        if not pathlib.Path(MODEL).exists():
            self.skipTest(f"{MODEL} is not there: run tools/setup")


class FastUsage(Transcripts):
    def test_no_command_is_wrong_usage(self):
        code, out, err = neve()
        self.assertEqual((code, out), (2, ""))
        self.assertIn("info", err)

    def test_unknown_commands_are_refused_with_the_list(self):
        self.refused(2, ['unknown command "frobnicate"', "run, chat, plan, eval, bench, info"], "frobnicate")
        self.refused(2, ['unknown command "serve"', "run"], "serve")
        self.refused(2, ['unknown command "recall"', "kl, ppl"], "eval", "recall")
        self.refused(2, ['unknown command "delta"', "attend, decode"], "bench", "delta")

    def test_help_and_version_are_results(self):
        for arguments in (["--help"], ["run", "--help"], ["eval", "kl", "--help"], ["bench", "decode", "--help"]):
            code, out, err = neve(*arguments)
            self.assertEqual((code, err), (0, ""), arguments)
            self.assertIn("-h,--help", out)
        code, out, _ = neve("--version")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"^neve \d+\.\d+\.\d+\n$")

    def test_bad_flags_are_wrong_usage(self):
        self.refused(2, ["--model"], "plan")
        self.refused(2, ["--frob"], "plan", "-m", "x.gguf", "--frob")
        self.refused(2, ["--kv", "int3"], "plan", "-m", "x.gguf", "--kv", "int3")
        self.refused(2, ["--kv", "shift"], "plan", "-m", "x.gguf", "--kv", "pm:4:shift=sideways")
        self.refused(2, ["--budget", "12 parsecs"], "plan", "-m", "x.gguf", "--budget", "12 parsecs")
        self.refused(2, ["--budget"], "plan", "-m", "x.gguf", "--budget", "0")
        self.refused(2, ["--demote", "column"], "plan", "-m", "x.gguf", "--demote", "column")
        self.refused(2, ["--ctx"], "plan", "-m", "x.gguf", "--ctx", "-5")
        self.refused(2, ["--threads"], "run", "-m", "x.gguf", "-t", "0")
        self.refused(2, ["--depth"], "bench", "decode", "-m", "x.gguf", "--depth", "1,x")
        self.refused(2, ["--seqs"], "bench", "decode", "-m", "x.gguf", "--seqs", "many")
        self.refused(2, ["--weights"], "eval", "kl", "-m", "x.gguf", "--weights", "f16")
        self.refused(2, ["--text"], "eval", "kl", "-m", "x.gguf", "--text", "own", "-f", "x.txt")
        self.refused(2, ["--tokens"], "eval", "kl", "-m", "x.gguf", "-n", "1")

    def test_peers_run_only_side_by_side(self):
        self.refused(2, ["llama:q8_0"], "run", "-m", "x.gguf", "--kv", "llama:q8_0")
        self.refused(2, ["llama:f16"], "chat", "-m", "x.gguf", "--kv", "llama:f16")

    def test_an_unknown_instruction_set_is_an_error(self):
        self.refused(2, ["NEVE_ISA", "mmx", "scalar"], "info", env={"NEVE_ISA": "mmx"})

    def test_info(self):
        report = self.report("info")
        row = report["rows"][0]
        self.assertIn(report["machine"]["isa"], [isa["name"] for isa in row["isas"] if isa["runs"]])
        code, out, _ = neve("info", env={"NEVE_ISA": "scalar"})
        self.assertEqual(code, 0)
        for word in ("scalar", "llama.cpp", "ggml"):
            self.assertIn(word, out)


class FastFiles(Transcripts):
    def test_a_file_that_is_not_there(self):
        for command in (["plan"], ["run", "-p", "x"], ["eval", "kl"], ["bench", "decode"]):
            self.refused(1, ["no-such-model.gguf"], *command, "-m", "no-such-model.gguf")

    def test_files_that_are_no_models(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in {
                "empty": b"",
                "text": b"This is prose and not a model.\n" * 10,
                "cut": b"GGUF" + struct.pack("<IQQ", 3, 5, 5),
                "huge": b"GGUF" + struct.pack("<IQQ", 3, 2**63, 2**63),
            }.items():
                path = pathlib.Path(folder) / name
                path.write_bytes(content)
                self.refused(1, [name], "plan", "-m", path)
                self.refused(1, [name], "run", "-m", path, "-p", "x")

    def test_plan(self):
        self.need_model()
        report = self.report("plan", "-m", MODEL, "--ctx", "8192", "--kv", "f16,int4,graded:2")
        f16, int4, graded2 = report["rows"]
        self.assertEqual([row["kv"] for row in report["rows"]], ["f16", "int4", "graded:2"])
        # 30 layers x 3 heads x (64 + 64) x 2 bytes x 8192 tokens are the f16 values themselves.
        self.assertGreaterEqual(f16["bytes"], 30 * 3 * 128 * 2 * 8192)
        self.assertLess(int4["bytes"], 0.36 * f16["bytes"])
        self.assertLess(graded2["bytes"], 0.6 * int4["bytes"] + 0.05 * f16["bytes"])
        self.assertEqual(len(f16["layers"]), 30)
        self.assertEqual(sum(layer["bytes"] for layer in int4["layers"]) <= int4["bytes"], True)

    def test_plan_names_the_least_budget(self):
        self.need_model()
        report = self.report("plan", "-m", MODEL, "--ctx", "8192", "--budget", "16MiB")
        row = report["rows"][0]
        self.assertLessEqual(row["bytes"], 16 << 20)
        self.assertLess(row["capacity_tokens"], 8192)
        self.assertGreater(row["least_bytes"], 16 << 20)
        self.refused(1, ["least"], "plan", "-m", MODEL, "--ctx", "8192", "--budget", "64kB")


class SlowRuns(Transcripts):
    def setUp(self):
        self.need_model()

    def test_run_tells_what_plan_said(self):
        report = self.report("run", "-m", MODEL, "-p", "The snow", "-n", "300", "--kv", "int4", "--seed", "1", "--ignore-eos")
        row = report["rows"][0]
        self.assertEqual((row["new_tokens"], row["finish"]), (300, "length"))
        total = row["prompt_tokens"] + row["new_tokens"]
        self.assertGreater(len(row["text"]), 300)
        self.assertEqual(sum(row["tokens_generated_by_rung"].values()), 300)
        self.assertEqual(sum(row["bytes_by_rung"].values()), row["kv_bytes"])
        self.assertGreater(total, 300)

    def test_run_is_deterministic_and_streams_to_stdout(self):
        arguments = ("run", "-m", MODEL, "-p", "Once upon a time", "-n", "24", "--seed", "7")
        code, first, account = neve(*arguments)
        self.assertEqual(code, 0, account)
        self.assertEqual(first, neve(*arguments)[1])
        for word in ("tokens/s", "peak", "demotions", "ISA"):
            self.assertIn(word, account)

    def test_run_ends_with_the_budget(self):
        report = self.report("run", "-m", MODEL, "-p", "The snow", "-n", "3000", "--budget", "8MiB", "--ignore-eos")
        row = report["rows"][0]
        self.assertEqual(row["finish"], "budget")
        self.assertLessEqual(row["kv_peak_bytes"], 8 << 20)
        self.assertGreater(row["demotions"], 0)
        self.refused(1, ["least"], "run", "-m", MODEL, "-p", "The snow", "--budget", "100kB")

    def test_ctrl_c_ends_with_the_account(self):
        process = subprocess.Popen([PROGRAM, "run", "-m", MODEL, "-p", "The snow", "--ignore-eos"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        process.stdout.read(40)  # it writes
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        for word in ("finish: cancelled", "capacity 8192", "ISA"):
            self.assertIn(word, err.decode())

    def test_eval_kl(self):
        report = self.report("eval kl", "-m", MODEL, "-n", "300", "--kv", "f16,int8,int4,llama:q4_0")
        f16, int8, int4, q4_0 = report["rows"]
        self.assertLess(f16["kl_mean"], 1e-9)
        self.assertLess(int8["kl_mean"], int4["kl_mean"])
        self.assertEqual((q4_0["engine"], q4_0["kv"]), ("llama.cpp", "llama:q4_0"))
        self.assertEqual([row["tokens"] for row in report["rows"]], [300] * 4)
        self.assertEqual(len(int4["kl_by_position"]), 5)
        self.assertGreater(report["noise_floor"], 0)
        self.assertLess(report["noise_floor"], 1e-4)

    def test_eval_says_that_a_text_is_short(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write("The quick brown fox jumps over the lazy dog. " * 4)
            text.flush()
            code, out, err = neve("eval", "ppl", "-m", MODEL, "-f", text.name, "-n", "500", "--kv", "int8")
            self.assertEqual(code, 0, err)
            self.assertIn("of the 500 tokens asked for", err)
            self.assertIn("perplexity", out)

    def test_bench_decode(self):
        report = self.report("bench decode", "-m", MODEL, "--depth", "0,300", "-n", "4", "--prefill", "32", "--repeats", "1",
                             "--kv", "llama:f16,int4")
        self.assertEqual([(row["engine"], row["kv"], row["depth"]) for row in report["rows"]],
                         [("llama.cpp", "f16", 0), ("neve", "int4", 0), ("llama.cpp", "f16", 300), ("neve", "int4", 300)])
        for row in report["rows"]:
            self.assertGreater(row["decode_tokens_per_s"], 0)
            self.assertGreater(row["prefill_tokens_per_s"], 0)

    def test_bench_attend(self):
        report = self.report("bench attend", "--head-dim", "64", "--gqa", "3", "--depth", "2048", "--working-set", "4MB",
                             "--repeats", "1")
        self.assertEqual([(row["engine"], row["kv"]) for row in report["rows"]],
                         [("ggml", "f16"), ("ggml", "q8_0"), ("ggml", "q4_0"), ("neve", "int8"), ("neve", "int4"),
                          ("neve", "int2")])
        for row in report["rows"]:
            self.assertGreater(row["values_per_s"], 1e6)
            self.assertGreater(row["over_f16"], 0)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PROGRAM = sys.argv[1]
    MODEL = str(pathlib.Path(sys.argv[2]) / "smollm2-135m-instruct-q4_1.gguf")
    rest = sys.argv[3:]
    slow = "--slow" in rest
    patterns = ["-k", "Slow"] if slow else ["-k", "Fast"]
    unittest.main(argv=[sys.argv[0], *[word for word in rest if word != "--slow"], *patterns])
