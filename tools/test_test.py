"""Tests of tools/test.py: how it counts, and that nothing that went wrong is counted as passed."""

import contextlib
import io
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import test as runner  # noqa: E402


def script(text):
    return [sys.executable, "-c", text]


class RunTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.logs = pathlib.Path(folder.name)

    def run_one(self, text, labels=(), timeout_s=60.0):
        return runner.run_one(
            runner.Test("thing", script(text), list(labels), {"STARLING_TEST_WORD": "bird"}, timeout_s, "."), self.logs)

    def gtest(self, report, printed="", status=0):
        return self.run_one(
            "import sys\n"
            f"report = {report!r}\n"
            "path = [a for a in sys.argv if a.startswith('--gtest_output=xml:')][0].split(':', 1)[1]\n"
            "if report: open(path, 'w').write(report)\n"
            f"print({printed!r})\n"
            f"sys.exit({status})", labels=["gtest"])

    def test_every_gtest_case_is_counted_and_a_skip_keeps_its_reason(self):
        result = self.gtest(
            '<testsuites><testsuite>'
            '<testcase name="A" status="run" result="completed" classname="S"/>'
            '<testcase name="B" status="run" result="completed" classname="S"><failure message="x"/></testcase>'
            '<testcase name="C" status="run" result="skipped" classname="S">'
            '<skipped message="file.cc:3&#x0A;no data here&#x0A;"/></testcase>'
            '<testcase name="DISABLED_D" status="notrun" result="suppressed" classname="S"/>'
            '</testsuite></testsuites>', status=1)
        self.assertEqual(result.passed, 1)
        self.assertEqual(result.failed, [("S.B", "failed")])
        self.assertEqual(result.skipped, [("S.C", "no data here"), ("S.DISABLED_D", "disabled")])

    def test_a_gtest_program_that_dies_names_the_case_it_was_in(self):
        result = self.gtest("", printed="[ RUN      ] S.A\n[       OK ] S.A (0 ms)\n[ RUN      ] S.B", status=134)
        self.assertEqual(result.passed, 1)
        self.assertEqual(result.failed, [("S.B", "exit status 134")])

    def test_a_bad_exit_status_after_good_cases_is_a_failure(self):
        result = self.gtest(
            '<testsuites><testsuite><testcase name="A" status="run" result="completed" classname="S"/>'
            '</testsuite></testsuites>', status=23)
        self.assertEqual((result.passed, result.failed), (1, [("thing", "exit status 23")]))

    def test_a_gtest_program_without_cases_is_a_failure(self):
        result = self.gtest("<testsuites></testsuites>")
        self.assertEqual(result.failed, [("thing", "no test case in this program")])

    def test_a_signal_is_a_failure_that_names_it(self):
        result = self.run_one("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        self.assertEqual((result.passed, result.failed), (0, [("thing", "ended by SIGSEGV")]))

    def test_a_timeout_is_a_failure_that_names_it(self):
        result = self.run_one("import time; time.sleep(600)", timeout_s=0.3)
        self.assertEqual((result.passed, result.failed), (0, [("thing", "killed after its timeout of 0.3 s")]))

    def test_a_program_of_another_kind_is_one_case(self):
        self.assertEqual(self.run_one("pass").passed, 1)
        self.assertEqual(self.run_one("raise SystemExit(3)").failed, [("thing", "exit status 3")])

    def test_a_program_gets_the_environment_of_its_entry(self):
        result = self.run_one("import os; assert os.environ['STARLING_TEST_WORD'] == 'bird'")
        self.assertEqual((result.passed, result.failed), (1, []))

    def test_a_program_that_is_not_built_is_a_failure(self):
        result = runner.run_one(runner.Test("thing", [], ["gtest"], {}, 1.0, "."), self.logs)
        self.assertEqual(result.failed, [("thing", "not built")])

    def test_unittest_cases_are_counted_one_by_one(self):
        result = self.run_one(
            "import unittest\n"
            "class T(unittest.TestCase):\n"
            "    def test_a(self): pass\n"
            "    def test_b(self): self.fail('no')\n"
            "    @unittest.skip('no java')\n"
            "    def test_c(self): pass\n"
            "unittest.main(argv=['x', '-v'])", labels=["unittest"])
        self.assertEqual(result.passed, 1)
        self.assertEqual(len(result.failed), 1)
        self.assertIn("test_b", result.failed[0][0])
        self.assertEqual(result.skipped, [("test_c", "no java")])

    def test_a_unittest_program_that_cannot_be_loaded_is_a_failure(self):
        result = self.run_one("import there_is_no_such_module", labels=["unittest"])
        self.assertEqual((result.passed, result.failed), (0, [("thing", "exit status 1")]))


class ShowTest(unittest.TestCase):
    def shown(self, output, failed):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            runner.show(runner.Result("thing", passed=1, failed=failed, output=output))
        return out.getvalue().splitlines()

    def test_the_failed_case_and_what_it_said_come_first(self):
        before = "".join(f"[ RUN      ] S.Good{i}\n[       OK ] S.Good{i} (0 ms)\n" for i in range(1000))
        output = before + "[ RUN      ] S.Bad/0\nx.cc:7: Failure\n  which is wrong\n[  FAILED  ] S.Bad/0 (1 ms)\n" + before
        lines = self.shown(output, [("S.Bad/0", "failed")])
        self.assertEqual(lines[1:4], ["  failed: S.Bad/0: failed", "    x.cc:7: Failure", "      which is wrong"])
        self.assertIn("lines left out", "\n".join(lines))

    def test_a_case_that_the_program_died_in_shows_all_up_to_the_end(self):
        lines = self.shown("[ RUN      ] S.Dead\nlast words", [("S.Dead", "ended by SIGSEGV")])
        self.assertEqual(lines[1:3], ["  failed: S.Dead: ended by SIGSEGV", "    last words"])

    def test_a_unittest_failure_shows_its_trace(self):
        rule = "=" * 70
        lines = self.shown(f"{rule}\nFAIL: test_b (x.T)\n{'-' * 70}\nTrace: no\n{rule}\nERROR: test_c (x.T)\nRan 2 tests",
                           [("test_b (x.T)", "failed")])
        self.assertEqual(lines[1:4], ["  failed: test_b (x.T): failed", "    " + "-" * 70, "    Trace: no"])


class ListTest(unittest.TestCase):
    LISTING = json.loads("""{"tests": [
        {"name": "base", "command": ["base_test"], "properties": [
            {"name": "LABELS", "value": ["gtest", "threads"]}, {"name": "TIMEOUT", "value": 7.0},
            {"name": "ENVIRONMENT", "value": ["A=b=c"]}, {"name": "WORKING_DIRECTORY", "value": "/x"}, {"name": "COST", "value": 9.0}]},
        {"name": "frame_fuzz", "properties": [{"name": "LABELS", "value": ["fuzz", ""]}]}]}""")

    def test_the_list_of_ctest_is_understood(self):
        base, fuzz = runner.read_list(self.LISTING)
        self.assertEqual(base, runner.Test("base", ["base_test"], ["gtest", "threads"], {"A": "b=c"}, 7.0, "/x", 9.0))
        self.assertEqual(fuzz, runner.Test("frame_fuzz", [], ["fuzz"], {}, runner.TIMEOUT_S, "."))

    def test_labels_and_names_choose(self):
        tests = runner.read_list(self.LISTING)

        def names(**choice):
            return [t.name for t in runner.select(tests, choice.get("labels", []), choice.get("excluded", []), choice.get("name"))]

        self.assertEqual(names(), ["base", "frame_fuzz"])
        self.assertEqual(names(labels=["threads"]), ["base"])
        self.assertEqual(names(excluded=["fuzz"]), ["base"])
        self.assertEqual(names(name="^frame"), ["frame_fuzz"])

    def test_the_callers_sanitizer_options_win(self):
        options = runner.with_sanitizer_options({"ASAN_OPTIONS": "detect_leaks=0"})
        self.assertTrue(options["ASAN_OPTIONS"].endswith(":detect_leaks=0"))
        self.assertIn("tsan.supp", options["TSAN_OPTIONS"])

    def test_one_that_waits_runs_beside_the_others_and_an_exclusive_one_after_them(self):
        with tempfile.TemporaryDirectory() as folder:
            # Each of the first two ends well only while the other runs; the third when both have ended.
            meet = "touch $0; for i in $(seq 600); do test -e $1 && rm $1 && exit 0; sleep 0.1; done; exit 1"
            tests = [
                runner.Test("busy", ["sh", "-c", meet, "busy", "waits"], [], {}, 90.0, folder),
                runner.Test("alone", ["sh", "-c", "test -z \"$(ls)\""], ["exclusive"], {}, 90.0, folder),
                runner.Test("waits", ["sh", "-c", meet, "waits", "busy"], ["waits"], {}, 90.0, folder),
            ]
            with tempfile.TemporaryDirectory() as logs, contextlib.redirect_stdout(io.StringIO()):
                for number in (signal.SIGTERM, signal.SIGINT):
                    self.addCleanup(signal.signal, number, signal.getsignal(number))
                results = runner.run_all(tests, pathlib.Path(logs), 1)
        self.assertEqual({result.name: result.failed for result in results}, {"busy": [], "waits": [], "alone": []})
        self.assertEqual(results[-1].name, "alone")

    def test_no_program_is_left_behind_when_it_is_told_to_stop(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = pathlib.Path(folder, "pid")
            program = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid()) + ' '); time.sleep(600)"
            pathlib.Path(folder, "CTestTestfile.cmake").write_text(f'add_test(sleeper "{sys.executable}" "-c" "{program}")')
            process = subprocess.Popen([sys.executable, runner.__file__, folder], stdout=subprocess.DEVNULL)
            self.wait_until(lambda: mark.exists() and mark.read_text().endswith(" "))
            process.terminate()
            self.assertEqual(process.wait(timeout=60), 128 + signal.SIGTERM)
            sleeper = pathlib.Path("/proc", mark.read_text().strip(), "stat")
            # Gone, or a zombie that nobody has waited for.
            self.wait_until(lambda: not sleeper.exists() or sleeper.read_text().rsplit(")", 1)[1].split()[0] == "Z")

    def wait_until(self, true):
        end = time.monotonic() + 60
        while not true():
            self.assertLess(time.monotonic(), end, "waited in vain")
            time.sleep(0.02)

    def test_an_empty_choice_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "CTestTestfile.cmake").write_text("")
            self.assertEqual(runner.main([folder]), 1)
            counts = json.loads(pathlib.Path(folder, "tests.json").read_text())
        self.assertEqual(counts, {"passed": 0, "failed": 0, "skipped": 0})


if __name__ == "__main__":
    unittest.main()
