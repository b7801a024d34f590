"""The fuzz driver with decoders that crash: it keeps the input, and the kept input crashes again."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BROKEN = os.environ["STARLING_BROKEN_FUZZ"]
HELLO = os.environ["STARLING_HELLO_FUZZ"]
HAS_ADDRESS_SANITIZER = "address" in os.environ["STARLING_SANITIZERS"]
DECODERS = ["abort", "write_nowhere", "read_behind", "recurse"]  # in the order of broken_fuzz.cc


class DriverTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_driver(self, *arguments, program=BROKEN):
        # The driver's own options, not those of whoever runs this test.
        environment = {name: value for name, value in os.environ.items() if not name.endswith("SAN_OPTIONS")}
        return subprocess.run([program, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True,
                              check=False)

    def expect_kept(self, decoder):
        result = self.run_driver("--runs", "10", "--decoder", decoder)
        self.assertLess(result.returncode, 0, result.stderr)
        kept = self.folder / f"crash-broken_fuzz-{decoder}-1"
        self.assertIn(f"the input is kept in {kept.name}\n", result.stderr)
        self.assertEqual(kept.read_bytes(), bytes([DECODERS.index(decoder)]) + b"fatal")
        kept = kept.rename(self.folder / "input")
        self.assertLess(self.run_driver(str(kept)).returncode, 0)

    def test_the_input_of_an_abort_is_kept(self):
        self.expect_kept("abort")

    def test_the_input_of_a_bad_write_is_kept(self):
        self.expect_kept("write_nowhere")

    def test_the_input_that_used_up_the_stack_is_kept(self):
        self.expect_kept("recurse")

    if HAS_ADDRESS_SANITIZER:
        def test_the_input_of_what_a_sanitizer_found_is_kept(self):
            self.expect_kept("read_behind")

    def test_each_decoder_of_a_target_gets_all_runs(self):
        result = self.run_driver("--runs", "1000", program=HELLO)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines(), [f"{name}: 1002 inputs" for name in (
            "client_hello", "server_hello", "client_proof")])

    def test_a_decoder_that_is_not_there_is_a_mistake(self):
        result = self.run_driver("--decoder", "nothing")
        self.assertEqual(result.returncode, 1)
        self.assertIn("has no decoder 'nothing'", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
