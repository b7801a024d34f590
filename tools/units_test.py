"""Tests of tools/units.py: which files go together."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import units  # noqa: E402

ONE = "int one() { return 1; }\n"
TWO = "int two() { return 2; }\n"


class UnitsTest(unittest.TestCase):
    def test_files_that_define_the_same_name_are_kept_apart(self):
        clashes = ("namespace {\nint one() { return 2; }\n}\n", "constexpr int one = 3;\n", "struct one {};\n", "#define one 1\n",
                   "using one = int;\n", "struct {\n  int x;\n} one[] = {{1}};\n", "std::map<int, int>& one(int at);\n")
        for text in clashes:
            with self.subTest(text=text):
                self.assertEqual(units.packed([("a.cc", ONE), ("b.cc", text), ("c.cc", TWO)], 9), [["a.cc", "c.cc"], ["b.cc"]])

    def test_no_unit_is_larger_than_asked_for(self):
        files = [(f"{i}.cc", f"int name_{i}() {{ return {i}; }}\n" + "//" * 480) for i in range(7)]
        self.assertEqual([len(unit) for unit in units.packed(files, 3)], [3, 3, 1])

    def test_a_file_larger_than_a_unit_is_one_of_its_own(self):
        files = [("a.cc", ONE), ("b.cc", TWO + "//" * 480), ("c.cc", "int three() { return 3; }\n")]
        self.assertEqual(units.packed(files, 0.5), [["a.cc", "c.cc"], ["b.cc"]])

    def test_a_file_that_highway_reads_several_times_stands_alone(self):
        files = [("a.cc", ONE), ("b.cc", "#include <hwy/foreach_target.h>\n"), ("c.cc", TWO)]
        self.assertEqual(units.packed(files, 9), [["b.cc"], ["a.cc", "c.cc"]])

    def test_a_file_with_mutants_stands_alone(self):
        files = [("a.cc", ONE), ("b.cc", '#include "ps/mutants.h"\n'), ("c.cc", TWO)]
        self.assertEqual(units.packed(files, 9), [["b.cc"], ["a.cc", "c.cc"]])

    def test_units_are_printed_as_cmake_reads_them(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
            paths = [str(pathlib.Path(folder, name)) for name in ("a.cc", "b.cc", "c.cc")]
            for path, text in zip(paths, (ONE, ONE, TWO)):
                pathlib.Path(path).write_text(text)
            self.assertEqual(units.main(["9", *paths]), 0)
        self.assertEqual(out.getvalue(), f"{paths[0]};{paths[2]}\n{paths[1]}\n")


if __name__ == "__main__":
    unittest.main()
