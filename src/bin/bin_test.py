"""The `starling` command as a user types it."""

import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ["STARLING_TEST_PROGRAM"]


def starling(*arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, check=False, env={**environment, **variables})


class CommandTest(unittest.TestCase):
    def test_help_lists_the_commands(self):
        result = starling("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("config", result.stdout)

    def test_an_unknown_command_is_named_and_fails(self):
        result = starling("trian")
        self.assertEqual(result.returncode, 2)
        self.assertIn("unknown command 'trian'", result.stderr)

    def test_nothing_at_all_shows_the_help_and_fails(self):
        self.assertEqual(starling().returncode, 2)


class ConfigTest(unittest.TestCase):
    def setUp(self):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)
        self.addCleanup(os.unlink, self.file.name)

    def write(self, text):
        self.file.write(text)
        self.file.close()
        return self.file.name

    def test_print_config_says_where_each_value_came_from(self):
        job = self.write("name: ctr\nseed: 7\ntrain: {threads: 2}\n")
        result = starling("config", "--job", job, "--set", "seed=9", "--print-config", PS_ENABLE_POLLING="1")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertTrue(any(line.startswith("name=") and f"{job}:1" in line for line in lines), result.stdout)
        self.assertTrue(any(line.startswith("seed=9") and "--set" in line for line in lines), result.stdout)
        self.assertTrue(any(line.startswith("ps.net.polling=true") and "PS_ENABLE_POLLING" in line for line in lines))

    def test_a_misspelt_key_names_file_line_and_the_nearest_key(self):
        job = self.write("name: ctr\nsede: 7\n")
        result = starling("config", "--job", job)
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"{job}:2", result.stderr)
        self.assertIn("seed", result.stderr)

    def test_a_missing_file_is_named(self):
        result = starling("config", "--job", "/no/such/job.yaml")
        self.assertEqual(result.returncode, 1)
        self.assertIn("/no/such/job.yaml", result.stderr)

    def test_an_unknown_flag_is_refused(self):
        result = starling("config", "--printconfig")
        self.assertEqual(result.returncode, 1)
        self.assertIn("--printconfig", result.stderr)

    def test_print_keys_lists_bounds_and_meaning(self):
        result = starling("config", "--print-keys")
        self.assertEqual(result.returncode, 0)
        self.assertIn("batch_size", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
