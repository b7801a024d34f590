"""The `starling` command as a user types it."""

import json
import os
import pathlib
import signal
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



class DataTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_init_writes_a_job_that_reads_the_file(self):
        table = self.folder / "clicks.csv"
        rows = [f"{20 + i},town{i % 3},{1 if i % 4 == 0 else 0}" for i in range(50)]
        table.write_text("\n".join(["age,city,clicked", *rows]) + "\n")
        job = self.folder / "job.yaml"
        result = starling("init", str(table), "--out", str(job))
        self.assertEqual(result.returncode, 0, result.stderr)
        shown = starling("data", "show", str(job), "-n", "2", "--set", "data.split={rate: {test: 0}}")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("keys of city", shown.stdout)
        stats = starling("data", "stats", str(job), "--set", "data.split={rate: {test: 0}}")
        self.assertEqual(stats.returncode, 0, stats.stderr)
        self.assertRegex(stats.stdout, r"samples +50")
        self.assertRegex(stats.stdout, r"~3 distinct")
        again = starling("init", str(table), "--out", str(job))
        self.assertEqual(again.returncode, 1)
        self.assertIn(str(job), again.stderr)

    def test_normalise_takes_the_constants_that_stats_wrote(self):
        table = self.folder / "a.csv"
        table.write_text("".join(f"{i % 2},{10 + i % 5}\n" for i in range(100)))
        stats = self.folder / "stats.yaml"
        job = self.folder / "job.yaml"
        job.write_text(
            "data: {format: csv, train: [%s], stats: %s, reader: {csv: {columns: [y, x]}}}\n"
            "fields:\n  - {name: y, kind: label}\n"
            "  - {name: x, kind: dense, transforms: {normalise: }}\n" % (table, stats)
        )
        self.assertIn(str(stats), starling("data", "show", str(job)).stderr)
        wrote = starling("data", "stats", str(job), "--write", str(stats))
        self.assertEqual(wrote.returncode, 0, wrote.stderr)
        self.assertRegex(stats.read_text(), r"x: \{mean: 12, std: 1\.4142")
        seen = starling("data", "stats", str(job))
        self.assertEqual(seen.returncode, 0, seen.stderr)
        self.assertRegex(seen.stdout, r"mean -?\d[^ ]*, std 1,")

    def test_mistakes_are_named(self):
        words = self.folder / "words"
        words.write_text("just words\n")
        self.assertIn("just words", starling("init", str(words), "--out", "-").stderr)
        self.assertIn("unknown action", starling("data", "look", "job.yaml").stderr)
        self.assertIn("-n is 'x'", starling("data", "show", "job.yaml", "-n", "x").stderr)


class SchedulerTest(unittest.TestCase):
    def start(self, *arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
        process = subprocess.Popen(
            [PROGRAM, "scheduler", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_status_shows_a_running_job_as_a_table_and_as_json(self):
        process = self.start("--set", "name=ctr", "--listen", "grpc++://127.0.0.1:0", "--listen", "grpc://127.0.0.1:0")
        addresses = [process.stdout.readline().strip() for _ in range(2)]
        self.assertTrue(addresses[0].startswith("grpc++://127.0.0.1:"), addresses)
        self.assertTrue(addresses[1].startswith("grpc://127.0.0.1:"), addresses)
        for address in addresses:
            table = starling("status", "--scheduler", address)
            self.assertEqual(table.returncode, 0, table.stderr)
            self.assertIn("job ctr: created", table.stdout)
            shown = json.loads(starling("status", "--scheduler", address, "--json").stdout)
            self.assertEqual(shown["job"]["job"]["name"], "ctr")
            self.assertEqual(shown["map"]["version"], "0")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(), 0)

    def test_addresses_without_a_protocol_are_of_the_clusters(self):
        process = self.start("--set", "cluster.protocol=grpc", "--listen", "127.0.0.1:0")
        address = process.stdout.readline().strip()
        self.assertTrue(address.startswith("grpc://127.0.0.1:"), address)
        bare = address.removeprefix("grpc://")
        result = starling("status", "--scheduler", bare, "--set", "cluster.protocol=grpc")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_scheduler_that_is_not_there_is_named(self):
        result = starling("status", "--scheduler", "grpc++://127.0.0.1:1", "--timeout", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn("127.0.0.1:1", result.stderr)

    def test_a_damaged_ledger_is_named_and_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            ledger = os.path.join(folder, "ledger")
            with open(ledger, "w", encoding="ascii") as file:
                file.write("this is no ledger, only text that someone left here")
            result = starling("scheduler", "--set", f"scheduler.ledger={ledger}")
            self.assertEqual(result.returncode, 1)
            self.assertIn(ledger, result.stderr)

    def test_wrong_flags_are_named(self):
        for arguments, word in [(["scheduler", "--lisen", "x"], "--lisen"), (["scheduler", "--listen"], "--listen"),
                                (["scheduler", "--listen", "tcp://x"], "tcp"), (["status"], "--scheduler"),
                                (["status", "--scheduler", "grpc://h:1", "--timeout", "x"], "--timeout")]:
            result = starling(*arguments)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertIn(word, result.stderr)

    def test_every_command_has_help(self):
        for command in ["scheduler", "ps", "status", "config"]:
            result = starling(command, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn(f"usage: starling {command}", result.stdout)


class CheckpointTest(unittest.TestCase):
    """On the frozen cut of tests/golden."""

    GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "checkpoint"

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name)
        self.cut = self.path / "cut-000000000003"
        self.cut.mkdir()
        for name in ("MANIFEST", "00000.dense", "00001.rows", "00002.state"):
            prefix = "" if name == "MANIFEST" else "000000000003-001-000-0000000000000007-"
            (self.cut / (prefix + name)).write_bytes((self.GOLDEN / name).read_bytes())

    def test_ls_lists_cuts_and_what_was_never_finished(self):
        (self.path / "cut-000000000004").mkdir()
        result = starling("checkpoint", "ls", str(self.path))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^ +3  full +-  all +2 ")
        self.assertRegex(result.stdout, r"(?m)^ +4  never finished$")

    def test_show_tells_tables_and_files(self):
        result = starling("checkpoint", "show", str(self.path))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("cut 3 of job 'test'", result.stdout)
        self.assertRegex(result.stdout, r"table +users +dim 4 +adagrad +2 rows")
        self.assertRegex(result.stdout, r"variable +bias +shape \[3\]")

    def test_verify_names_a_damaged_file(self):
        result = starling("checkpoint", "verify", str(self.path))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("cut 3: 3 files", result.stdout)
        rows = next(self.cut.glob("*.rows"))
        data = bytearray(rows.read_bytes())
        data[len(data) // 2] ^= 1
        rows.write_bytes(data)
        result = starling("checkpoint", "verify", str(self.path), "--all")
        self.assertEqual(result.returncode, 1)
        self.assertIn("DAMAGED", result.stdout)
        self.assertIn(rows.name, result.stdout)

    def test_export_gives_the_frozen_files(self):
        for form, names in (("text", ["users.txt", "bias.txt"]), ("csv", ["users.csv", "bias.csv"]),
                            ("npy", ["users.keys.npy", "users.weights.npy", "bias.keys.npy", "bias.weights.npy"])):
            out = self.path / "out"
            result = starling("checkpoint", "export", str(self.path), "--format", form, "--to", str(out))
            self.assertEqual(result.returncode, 0, result.stderr)
            for name in names:
                self.assertEqual((out / name).read_bytes(), (self.GOLDEN / name).read_bytes(), name)

    def test_errors_say_what_is_wrong(self):
        for arguments, text in (
                (["ls", str(self.path / "nowhere")], "nowhere"),
                (["show", str(self.path), "--cut", "9"], "no complete cut 9"),
                (["show", str(self.path), "--cut", "x"], "--cut x"),
                (["export", str(self.path)], "--to DIRECTORY is needed"),
                (["export", str(self.path), "--to", str(self.path), "--table", "nobody"], "nobody"),
                (["export", str(self.path), "--to", str(self.path), "--format", "xml"], "format 'xml'"),
                (["frobnicate", str(self.path)], "none of ls, show, verify, export, restore"),
                (["restore", str(self.path)], "--scheduler ADDRESS is needed"),
                (["restore", str(self.path), "--scheduler", "127.0.0.1:1", "--timeout", "0"], "--timeout 0"),
                (["restore", str(self.path), "--scheduler", "127.0.0.1:1", "--timeout", "1"], "127.0.0.1:1"),
                (["restore", str(self.path), "--scheduler", "127.0.0.1:1", "--shards", "2"], "'--shards'"),
                (["ls"], "PATH is needed")):
            result = starling("checkpoint", *arguments)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertIn(text, result.stderr)

    def test_help_tells_the_uses(self):
        result = starling("checkpoint", "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("usage: starling checkpoint ls PATH", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
