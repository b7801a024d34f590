"""Tests of tools/setup.sh with a made-up system: it installs what is missing, only that, and says so."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent
NEEDED = ("sh", "awk", "grep", "dirname", "env", "id")


class SetupTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("tools", "bin"):
            (self.root / name).mkdir()
        shutil.copy(TOOLS / "setup.sh", self.root / "tools" / "setup.sh")
        (self.root / "tools" / "packages.txt").write_text("# words\nbuild  one\nbuild  two\nlint   three\n")
        for name in NEEDED:
            (self.root / "bin" / name).symlink_to(shutil.which(name))
        self.be_debian(installed=("one", "two"))
        self.program("id", "echo 0")

    def program(self, name, body):
        path = self.root / "bin" / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def be_debian(self, installed):
        states = "".join(f"  {name}) echo installed;;\n" for name in installed)
        # Its last argument is the package; one that was removed is known all the same.
        self.program("dpkg-query", f'for last; do :; done\ncase "$last" in\n{states}  *) echo config-files;;\nesac')
        self.program("apt-get", f'echo "$*" >> {self.root}/asked')

    def setup(self, *groups):
        result = subprocess.run(["sh", self.root / "tools" / "setup.sh", *groups], capture_output=True, text=True,
                                check=False, env={**os.environ, "PATH": str(self.root / "bin")})
        asked = self.root / "asked"
        return result, asked.read_text() if asked.exists() else ""

    def test_nothing_is_done_or_said_when_nothing_is_missing(self):
        result, asked = self.setup("build")
        self.assertEqual((result.returncode, result.stdout, result.stderr, asked), (0, "", "", ""))

    def test_only_what_is_missing_is_installed_and_named(self):
        self.be_debian(installed=("one",))
        result, asked = self.setup("build", "lint")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "setup: installing two three\n")
        self.assertTrue(asked.splitlines()[-1].endswith(" two three"), asked)

    def test_another_system_gets_the_list_and_a_stop(self):
        (self.root / "bin" / "dpkg-query").unlink()
        result, asked = self.setup("build")
        self.assertEqual((result.returncode, asked), (1, ""))
        self.assertIn("  one\n  two\n", result.stderr)
        self.assertIn("SETUP=no", result.stderr)

    def test_without_root_and_sudo_it_says_what_it_would_install(self):
        self.be_debian(installed=("one",))
        self.program("id", "echo 1000")
        result, asked = self.setup("build")
        self.assertEqual((result.returncode, asked), (1, ""))
        self.assertIn("needs root or sudo to install: two", result.stderr)

    def test_sudo_is_used_where_there_is_one(self):
        self.be_debian(installed=("one",))
        self.program("id", "echo 1000")
        self.program("sudo", f'echo sudo >> {self.root}/asked\nexec "$@"')
        result, asked = self.setup("build")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(asked.splitlines()[0], "sudo")

    def test_an_unknown_group_is_named(self):
        result, _ = self.setup("biuld")
        self.assertEqual(result.returncode, 2)
        self.assertIn("'biuld'", result.stderr)


class MakeTest(unittest.TestCase):
    def test_make_alone_lists_every_target_with_its_meaning(self):
        environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
        told = subprocess.run(["make"], cwd=TOOLS.parent, env=environment, capture_output=True, text=True, check=True).stdout
        listed = {line.split()[1] for line in told.splitlines() if len(line.split()) > 2}
        phony = next(line for line in (TOOLS.parent / "Makefile").read_text().splitlines() if line.startswith(".PHONY:"))
        self.assertEqual(listed, set(phony.split()[1:]))


if __name__ == "__main__":
    unittest.main()
