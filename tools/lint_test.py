"""Tests of tools/lint.py on a small made-up tree: each tool fails where it should, and what passed is not run again."""

import contextlib
import io
import json
import pathlib
import shutil
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import lint  # noqa: E402

GOOD = "int one() { return 1; }\n"
MOVED = """#include <string>
#include <utility>
std::string f(std::string a) {
  std::string b = std::move(a);
  return a + b;
}
"""
UNLOCKED = """struct __attribute__((capability("mutex"))) Mutex {};
struct Thing {
  Mutex mutex;
  int n __attribute__((guarded_by(mutex))) = 0;
  int get() { return n; }
};
int get(Thing& thing) { return thing.get(); }
"""


@unittest.skipUnless(all(map(shutil.which, ("clang++", "clang-tidy", "clang-format"))), "clang's tools are not installed")
class LintTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        for name in ("src", "tools", "build/x"):
            (self.root / name).mkdir(parents=True)
        (self.root / ".clang-format").write_text("BasedOnStyle: Google\n")
        (self.root / ".clang-tidy").write_text("Checks: '-*,clang-diagnostic-*,bugprone-use-after-move'\nWarningsAsErrors: '*'\n"
                                               "HeaderFilterRegex: '/src/'\n")
        for name in ("lint.py", "units.py"):
            (self.root / "tools" / name).write_text("")
        (self.root / "build/x/build.ninja").write_text("")
        patches = [mock.patch.object(lint, "ROOT", self.root),
                   mock.patch.object(lint, "run", lambda command, folder=self.root, run=lint.run: run(command, folder))]
        for patch in patches:
            patch.start()
            self.addCleanup(patch.stop)

    def lint(self, text, name="a.cc"):
        return self.lint_files({name: text})

    def lint_files(self, texts):
        entries = []
        for name, text in texts.items():
            source = self.root / "src" / name
            source.write_text(text)
            entries.append({"directory": str(self.root / "build/x"), "file": str(source),
                            "command": f"/usr/bin/ccache clang++ -std=c++20 -o a.o -MD -MT a.o -MF a.d -c {source}"})
        (self.root / "build/x/compile_commands.json").write_text(json.dumps(entries))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = lint.main(["--build", str(self.root / "build/x")])
        return status, out.getvalue()

    def test_good_code_passes_and_is_not_checked_again(self):
        status, text = self.lint(GOOD)
        self.assertEqual(status, 0, text)
        self.assertIn("1 of them compiled (0 cached)", text)
        self.assertIn("1 of them compiled (1 cached)", self.lint(GOOD)[1])
        self.assertIn("1 of them compiled (0 cached)", self.lint(GOOD.replace("1", "2"))[1])

    def test_a_new_rule_asks_for_a_new_look(self):
        self.lint(GOOD)
        (self.root / ".clang-tidy").write_text("Checks: '-*,bugprone-*'\nWarningsAsErrors: '*'\n")
        self.assertIn("(0 cached)", self.lint(GOOD)[1])

    def test_a_changed_header_asks_for_a_new_look(self):
        (self.root / "src" / "a.h").write_text("#pragma once\n")
        text = '#include "a.h"\n' + GOOD
        self.lint(text)
        self.assertIn("(1 cached)", self.lint(text)[1])
        (self.root / "src" / "a.h").write_text("#pragma once\nint two();\n")
        self.assertIn("(0 cached)", self.lint(text)[1])

    def test_files_are_looked_at_together_and_blamed_alone(self):
        texts = {"a.cc": GOOD, "b.cc": GOOD.replace("one", "two"), "c.cc": MOVED}
        with mock.patch.object(lint.Linter, "look", autospec=True, side_effect=lint.Linter.look) as look:
            status, text = self.lint_files(texts)
            self.assertEqual(look.call_count, 4)
        self.assertEqual((status, text.count("bugprone-use-after-move")), (1, 1), text)
        self.assertIn("src/c.cc", text)
        self.assertIn("3 of them compiled (2 cached)", self.lint_files(texts)[1])

    def test_files_that_define_the_same_name_do_not_harm_each_other(self):
        hidden = "namespace {\n// clang-format off\nint  one() { return 1; }\n// clang-format on\n}  // namespace\n"
        self.assertEqual(self.lint_files({"a.cc": GOOD, "b.cc": GOOD})[0], 0)
        status, text = self.lint_files({"a.cc": hidden + "int two() { return one(); }\n",
                                        "b.cc": hidden + "int three() { return one(); }\n"})
        self.assertEqual(status, 0, text)

    def test_clang_tidy_complaints_are_errors_every_time(self):
        for _ in range(2):
            status, text = self.lint(MOVED)
            self.assertEqual(status, 1)
            self.assertIn("bugprone-use-after-move", text)
        self.assertEqual(json.loads((self.root / "build/x/tests.json").read_text()), {"passed": 0, "failed": 1, "skipped": 0})

    def test_thread_safety_complaints_are_errors(self):
        status, text = self.lint(UNLOCKED)
        self.assertEqual(status, 1)
        self.assertIn("requires holding mutex", text)

    def test_tests_are_compiled_but_not_tidied(self):
        status, text = self.lint(UNLOCKED, "a_test.cc")
        self.assertEqual(status, 1)
        self.assertIn("requires holding mutex", text)
        self.assertEqual(self.lint(MOVED, "a_test.cc")[0], 0)

    def test_what_sees_libtorch_is_skipped_with_its_reason(self):
        (self.root / "src" / "net.h").write_text("#include <torch/torch.h>\n")
        status, text = self.lint('#include "net.h"\n' + UNLOCKED)
        self.assertEqual(status, 0, text)
        self.assertIn("skipped src/a.cc: libtorch", text)
        self.assertEqual(json.loads((self.root / "build/x/tests.json").read_text()), {"passed": 1, "failed": 0, "skipped": 1})

    def test_code_that_is_not_formatted_is_an_error(self):
        status, text = self.lint("int  one( ) {return 1;}\n")
        self.assertEqual(status, 1)
        self.assertIn("src/a.cc: is not formatted", text)

    def test_a_tool_that_is_missing_is_named(self):
        out = io.StringIO()
        with mock.patch.object(lint.shutil, "which", lambda tool: None if tool == "clang-tidy" else tool):
            with contextlib.redirect_stdout(out):
                self.assertEqual(lint.main(["--build", str(self.root / "build/x")]), 1)
        self.assertIn("clang-tidy not found", out.getvalue())

    def test_format_rewrites_it(self):
        (self.root / "src" / "a.cc").write_text("int  one( ) {return 1;}\n")
        self.assertEqual(lint.main(["--format"]), 0)
        self.assertEqual((self.root / "src" / "a.cc").read_text(), GOOD)


if __name__ == "__main__":
    unittest.main()
