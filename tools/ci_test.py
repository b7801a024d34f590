"""Tests of .ci/run with made-up stages: the order, the total at the very end, and the end at the first failure."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
COUNTS = '{{"passed": {0}, "failed": {1}, "skipped": {2}}}'


class CiTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in (".ci", "tools", "bin", "build/release", "build/asan", "build/tsan", "build/lint"):
            (self.root / name).mkdir(parents=True)
        shutil.copy(ROOT / ".ci" / "run", self.root / ".ci" / "run")
        self.program("tools/setup.sh", 'echo "setup $*"')
        (self.root / "tools/tidy.py").write_text("print('tidy')\n")
        self.counts({"build/asan": (20, 0, 1), "build/tsan": (5, 0, 0)})
        self.lint(0)
        self.program("bin/cmake", 'echo "cmake $*"')
        self.makefile(test=f"echo '{COUNTS.format(100, 0, 2)}' > build/release/tests.json")

    def program(self, name, body):
        path = self.root / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def counts(self, of):
        (self.root / "tools/test.py").write_text(
            "import json, pathlib, sys\n"
            f"passed, failed, skipped = {of!r}[sys.argv[1]]\n"
            "print('test.py', *sys.argv[1:])\n"
            "text = json.dumps({'passed': passed, 'failed': failed, 'skipped': skipped})\n"
            "pathlib.Path(sys.argv[1], 'tests.json').write_text(text)\n"
            "sys.exit(failed > 0)\n")

    def lint(self, complaints):
        counts = COUNTS.format(0 if complaints else 1, complaints, 0)
        (self.root / "tools/lint.py").write_text(
            "import pathlib, sys\n"
            "print('lint.py')\n"
            f"pathlib.Path('build/lint/tests.json').write_text('{counts}')\n"
            f"sys.exit({complaints} > 0)\n")

    def makefile(self, build="true", test="true"):
        (self.root / "Makefile").write_text(f".PHONY: build test\nbuild:\n\t@{build}\ntest:\n\t@{test}\n")

    def environment(self):
        environment = dict(os.environ, PATH=f"{self.root / 'bin'}:{os.environ['PATH']}")
        # make sets these for its children; the made-up make must not take them for its own.
        for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
            environment.pop(name, None)
        return environment

    def run_ci(self):
        result = subprocess.run([self.root / ".ci" / "run"], env=self.environment(), capture_output=True, text=True,
                                check=False)
        return result.returncode, result.stdout.splitlines()

    def stop_ci(self, number):
        """Starts a run whose stage of release tests writes its counts and never ends, and stops all of it then."""
        self.makefile(test=f"echo '{COUNTS.format(100, 0, 2)}' > build/release/tests.json; exec python3 wait.py")
        # A shell that says so itself, and is told to stop while it starts `sleep`, would start it deaf to that.
        (self.root / "wait.py").write_text("import time\nprint('waiting', flush=True)\ntime.sleep(1000)\n")
        process = subprocess.Popen([self.root / ".ci" / "run"], env=self.environment(), stdout=subprocess.PIPE,
                                   stderr=subprocess.DEVNULL, text=True, start_new_session=True,
                                   # A shell starts what it puts behind `&` deaf to Ctrl-C, and so are its children.
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        self.addCleanup(process.stdout.close)
        self.assertIn("waiting\n", iter(process.stdout.readline, ""))
        os.killpg(process.pid, number)
        lines = process.stdout.read().splitlines()
        return process.wait(), lines

    def test_the_last_line_is_the_total_of_all_stages(self):
        status, lines = self.run_ci()
        self.assertEqual(status, 0, lines)
        self.assertEqual(lines[-1], "126 passed, 0 failed, 3 skipped")
        stages = [line for line in lines if line.startswith("== ")]
        self.assertEqual(len(stages), 10, stages)
        self.assertEqual(stages[-2], "== lint")
        self.assertTrue(lines[-2].startswith("all: "))

    def test_what_java_and_clang_are_needed_for_is_installed(self):
        self.assertIn("setup build hdfs lint", self.run_ci()[1])

    def test_complaints_of_lint_fail_the_run(self):
        self.lint(2)
        status, lines = self.run_ci()
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], "125 passed, 2 failed, 3 skipped")

    def test_the_thread_sanitizer_runs_what_has_threads(self):
        self.assertIn("test.py build/tsan --label threads", self.run_ci()[1])

    def test_a_failed_test_ends_the_run_and_is_in_the_total(self):
        self.counts({"build/asan": (18, 2, 1), "build/tsan": (5, 0, 0)})
        status, lines = self.run_ci()
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], "118 passed, 2 failed, 3 skipped")
        self.assertFalse([line for line in lines if "build/tsan" in line])

    def test_a_build_that_fails_counts_as_one_failure(self):
        self.makefile(build="false")
        status, lines = self.run_ci()
        self.assertEqual(status, 1)
        self.assertEqual(lines[-1], "0 passed, 1 failed, 0 skipped")

    def test_a_run_that_is_stopped_has_failed(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            status, lines = self.stop_ci(number)
            self.assertNotEqual(status, 0)
            self.assertEqual(lines[-1], "100 passed, 1 failed, 2 skipped")

    def test_counts_of_an_earlier_run_do_not_count(self):
        (self.root / "build/tsan/tests.json").write_text(COUNTS.format(1000, 0, 0))
        self.makefile(build="false")
        self.assertEqual(self.run_ci()[1][-1], "0 passed, 1 failed, 0 skipped")


if __name__ == "__main__":
    unittest.main()
