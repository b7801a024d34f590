"""Tests of bench/run.py: ratios, bars, the table and the JSON."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run as bench  # noqa: E402


class RowTest(unittest.TestCase):
    def test_a_ratio_above_one_means_we_are_better(self):
        self.assertEqual(bench.row("rate", "GB/s", 6.0, "grpc", 2.0)["ratio"], 3.0)
        self.assertEqual(bench.row("latency", "us", 2.0, "grpc", 6.0, less_is_better=True)["ratio"], 3.0)

    def test_a_bar_holds_or_not(self):
        self.assertIs(bench.row("a", "us", 2.0, "b", 6.0, less_is_better=True, bar=3)["holds"], True)
        self.assertIs(bench.row("a", "us", 2.0, "b", 5.9, less_is_better=True, bar=3)["holds"], False)

    def test_a_bar_without_a_rival_does_not_hold(self):
        self.assertIs(bench.row("a", "us", 2.0, bar=1)["holds"], False)

    def test_without_a_bar_nothing_has_to_hold(self):
        r = bench.row("a", "us", 2.0, "b", 1.0)
        self.assertIsNone(r["bar"])
        self.assertIsNone(r["holds"])


class OutputTest(unittest.TestCase):
    def test_a_program_that_fails_is_named_with_its_last_words(self):
        self.assertEqual(bench.output_of("sh", "-c", "echo $0", 7), "7\n")
        with self.assertRaisesRegex(RuntimeError, "^sh: no disk$"):
            bench.output_of("/bin/sh", "-c", "echo no disk >&2; exit 3")


class TableTest(unittest.TestCase):
    def test_columns_line_up(self):
        text = bench.table([bench.row("8 B p50", "us", 7.25, "gRPC unary", 208.0, less_is_better=True, bar=15),
                            bench.row("idle", "cores", 0.001)])
        self.assertEqual(text.splitlines(), [
            "work     unit    ours  rival       theirs  ratio  bar  holds",
            "-------  -----  -----  ----------  ------  -----  ---  -----",
            "8 B p50  us      7.25  gRPC unary     208  28.7x  15x    yes",
            "idle     cores  0.001  -                -      -    -      -",
        ])


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "scenarios").mkdir()
        patches = [mock.patch.object(bench, "BENCH", self.root)]
        for function in ("names", "load"):
            original = getattr(bench, function)
            folder_of = self.root / "scenarios"
            patches.append(mock.patch.object(
                bench, function, lambda *args, original=original: original(*args, folder=folder_of)))
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def scenario(self, name, body):
        (self.root / "scenarios" / f"{name}.py").write_text(
            f'"""Measures {name}."""\nfrom run_bench import row\n\n\ndef run(build, quick):\n    {body}\n')

    def main(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            try:
                status = bench.main(list(arguments))
            except SystemExit as end:
                status = end.code
        return status, out.getvalue()

    def test_a_scenario_prints_its_table_and_writes_json(self):
        self.scenario("wire", "return [row('copy', 'GB/s', 4.0, 'memcpy', 8.0, bar=0.4)]")
        status, text = self.main("wire", "--json", str(self.root / "x" / "wire.json"))
        self.assertEqual(status, 0)
        self.assertIn("== wire: Measures wire.", text)
        report = json.loads((self.root / "x" / "wire.json").read_text())
        self.assertEqual(list(report), ["bench", "commit", "machine", "rows"])
        self.assertEqual(report["bench"], "wire")
        self.assertEqual(report["rows"], [{"work": "copy", "unit": "GB/s", "ours": 4.0, "rival": "memcpy", "theirs": 8.0,
                                           "ratio": 0.5, "bar": 0.4, "holds": True}])

    def test_quick_and_the_build_folder_reach_the_scenario(self):
        self.scenario("wire", "return [row(f'{build.name} {quick}', 'x', 1)]")
        self.assertIn("other True", self.main("wire", "--quick", "--build", "build/other")[1])

    def test_a_scenario_that_breaks_is_an_error_and_stops_no_other(self):
        self.scenario("a", "raise RuntimeError('no server')")
        self.scenario("b", "return [row('b', 'x', 1)]")
        status, text = self.main("--all")
        self.assertEqual(status, 1)
        self.assertIn("no server", text)
        self.assertTrue((self.root / "out" / "b.json").exists())

    def test_rows_of_another_shape_are_an_error(self):
        self.scenario("a", "return [{'work': 'a'}]")
        self.scenario("b", "return []")
        self.assertIn("make it with row()", self.main("a")[1])
        self.assertEqual(self.main("b")[0], 1)

    def test_a_bar_that_does_not_hold_is_shown_and_no_error(self):
        self.scenario("a", "return [row('a', 'x', 1, 'b', 2, bar=1)]")
        status, text = self.main("a")
        self.assertEqual(status, 0)
        self.assertIn("NO", text)

    def test_an_unknown_name_lists_the_known_ones(self):
        self.scenario("transport", "return []")
        status, text = self.main("transprot")
        self.assertEqual(status, 2)
        self.assertIn("there are: transport", text)

    def test_list(self):
        self.scenario("b", "return []")
        self.scenario("a", "return []")
        self.assertEqual(self.main("--list"), (0, "a\nb\n"))


if __name__ == "__main__":
    unittest.main()
