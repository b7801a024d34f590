#!/usr/bin/env python3
"""Whole jobs that are stopped, joined and run as processes whose parts die: the same bits, every sample once."""
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["STARLING_TEST_PROGRAM"]
PATIENCE_S = 240

JOB = """
name: ctr
seed: 7
data: {format: criteo, train: ["data/train-*.tsv"], test: ["data/test.tsv"], batch_size: 64, shuffle_samples: 2000, epochs: 4}
fields:
  - {name: label, kind: label}
  - {name: I1, kind: dense, transforms: log}
  - {name: I2, kind: dense, transforms: log}
  - {name: C1, table: ids}
  - {name: C2, table: ids}
  - {name: C3, table: ids}
  - {name: C9, table: ids}
tables:
  ids: {dim: 5, optimizer: {adagrad: {lr: 0.05}}, initializer: {normal: {std: 0.01}}}
model: {deepfm: {hidden: [16, 8]}}
dense: {optimizer: {adam: {lr: 0.001}}}
train: {staleness: 0, threads: 2}
cluster: {ps: 1, shards: 2, hubs: 1, trainers: 1}
checkpoint: {path: cuts}
scheduler: {lease_ms: 3000}
hub: {lease_ms: 3000}
"""
# One key per line: rows and updates of `seen` count samples.
UNIQUE = """
name: unique
seed: 7
data: {format: csv, train: [unique.csv], batch_size: 32, epochs: 1, reader: {csv: {header: true}}}
fields:
  - {name: label, kind: label}
  - {name: line, table: seen}
  - {name: word, table: words}
tables:
  seen: {dim: 1, optimizer: {sgd: {lr: 0.01}}}
  words: {dim: 1, optimizer: {sgd: {lr: 0.01}}}
model: {lr: {}}
train: {staleness: inf, threads: 1}
cluster: {ps: 2, shards: 1, hubs: 1, trainers: 2}
scheduler: {lease_ms: 3000}
hub: {lease_ms: 3000}
"""


class JobTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.children = []
        self.addCleanup(self.end_children)

    def end_children(self):
        for child in self.children:
            child.kill()
            child.communicate()

    def run_starling(self, *arguments, environment=None):
        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.path, capture_output=True, text=True, check=False,
                              timeout=PATIENCE_S, env={**os.environ, **(environment or {})})

    def starling(self, *arguments):
        ended = self.run_starling(*arguments)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended.stdout

    def start(self, *arguments):
        child = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True)
        self.children.append(child)
        return child

    def end(self, child, status):
        out, errors = child.communicate(timeout=PATIENCE_S)
        self.assertEqual(child.returncode, status, out + errors)
        return out + errors

    def wait_for(self, what, told):
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            found = what()
            if found:
                return found
            time.sleep(0.05)
        self.fail(told)

    def generate(self, samples=6000):
        self.starling("generate", "ctr", "--out", "data", "--samples", samples, "--test", 1000, "--keys", 2000)
        (self.path / "job.yaml").write_text(JOB)

    def trained(self, run="runs/ctr"):
        """The samples that the newest line of the metrics tells."""
        try:
            lines = (self.path / run / "metrics.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return 0
        return max((json.loads(line).get("samples", 0) for line in lines), default=0)

    def bits(self, cuts):
        """Keys, weights and variables of the newest cut in a directory."""
        to = self.path / f"{cuts}-export"
        self.starling("checkpoint", "export", cuts, "--to", to, "--format", "npy")
        return {file.name: file.read_bytes() for file in sorted(to.iterdir())}

    def test_ps_and_protocols_do_not_change_a_bit(self):
        self.generate(3000)
        ways = {"one": ("data.epochs=1",), "three": ("data.epochs=1", "cluster.ps=3", "cluster.shards=1"),
                "grpc": ("data.epochs=1", "cluster.protocol=grpc", "cluster.ps=2"),
                "fast": ("data.epochs=1", "cluster.protocol=grpc++", "cluster.trainers=2", "train.threads=1")}
        bits = {}
        for name, sets in ways.items():
            how = ("--processes",) if name in ("grpc", "fast") else ()
            self.starling("train", "job.yaml", *how, "--run", f"{name}-run", "--set", f"checkpoint.path={name}",
                          *(word for one in sets for word in ("--set", one)))
            bits[name] = self.bits(name)
        for name in ("three", "grpc", "fast"):
            self.assertEqual(bits["one"], bits[name], name)

    def processes(self, name):
        found = subprocess.run(["pgrep", "-f", "--", f"--name {name} .*{self.path.name}|{self.path.name}.*--name {name} "],
                               capture_output=True, text=True, check=False)
        return [int(word) for word in found.stdout.split()]

    def unique(self, lines):
        rows = "".join(f"{i % 2},line{i},word{i % 2}\n" for i in range(lines))
        (self.path / "unique.csv").write_text("label,line,word\n" + rows)
        # The path makes the processes of this test known by their arguments.
        job = self.path / "unique.yaml"
        job.write_text(UNIQUE)
        return job

    def check_once(self, told, lines):
        self.assertIn(f"{lines} samples read, {lines} trained, 0 skipped", told)
        self.assertIn(f"table seen: dim 1, sgd, {lines} rows, {lines} updates", told)

    def test_a_trainer_that_is_killed_costs_no_sample(self):
        lines = 60000
        job = self.unique(lines)
        child = self.start("train", job, "--processes")
        self.wait_for(lambda: self.trained("runs/unique") > lines // 20, "it does not train")
        victims = self.wait_for(lambda: self.processes("trainer-1"), "no trainer-1")
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        told = self.end(child, 0)
        self.assertIn("trainer-1 died", told)
        self.check_once(told, lines)

    def test_a_trainer_that_joins_gets_batches(self):
        lines = 600000
        job = self.unique(lines)
        child = self.start("train", job, "--processes", "--set", "cluster.trainers=1")
        self.wait_for(lambda: self.trained("runs/unique") > 0, "it does not train")
        state = (self.path / "runs/unique/state").read_text()
        address = re.search(r"scheduler: (\S+)", state).group(1)
        late = self.start("trainer", "--job", job, "--scheduler", address, "--name", "late")
        shared = self.wait_for(lambda: self.samples_of("late", address), "the late one gets nothing")
        self.assertGreater(shared, 0)
        self.check_once(self.end(child, 0), lines)
        self.end(late, 0)

    def samples_of(self, name, address):
        asked = self.run_starling("status", "--scheduler", address, "--json")
        if asked.returncode != 0:
            return 0
        for node in json.loads(asked.stdout)["job"]["nodes"]:
            rates = {rate["name"]: rate["value"] for rate in node["rates"]}
            if node["name"] == name:
                return rates.get("samples", 0)
        return 0

    def test_a_ps_that_dies_ends_the_job_with_its_name(self):
        job = self.unique(200000)
        child = self.start("train", job, "--processes")
        self.wait_for(lambda: self.trained("runs/unique") > 0, "it does not train")
        for victim in self.processes("ps-1"):
            os.kill(victim, signal.SIGKILL)
        self.assertIn("ps-1 died with status 137", self.end(child, 1))
        self.wait_for(lambda: not self.processes("ps-0"), "ps-0 is left behind")
        self.assertIn("failed", self.starling("status", "--run", "runs/unique"))

    def test_a_scheduler_that_dies_is_started_again(self):
        lines = 60000
        job = self.unique(lines)
        child = self.start("train", job, "--processes")
        self.wait_for(lambda: self.trained("runs/unique") > 0, "it does not train")
        found = subprocess.run(["pgrep", "-f", "--", f"starling scheduler .*{self.path.name}"], capture_output=True, text=True,
                               check=False)
        os.kill(int(found.stdout.split()[0]), signal.SIGKILL)
        told = self.end(child, 0)
        self.assertIn("scheduler died with status 137; it is started again", told)
        self.check_once(told, lines)

    def test_a_job_runs_once_and_says_what_to_do(self):
        self.generate(3000)
        child = self.start("train", "job.yaml", "--set", "data.epochs=200", "--set", "train.staleness=inf")
        self.wait_for(lambda: self.trained() > 0, "it does not train")
        self.assertIn("job ctr: training", self.starling("status"))
        again = self.run_starling("train", "job.yaml")
        self.assertEqual(again.returncode, 1)
        self.assertIn("runs already, as process", again.stderr)
        self.assertIn("starling status --run runs/ctr", again.stderr)
        child.send_signal(signal.SIGINT)
        self.assertIn("checkpoint cuts/cut-", self.end(child, 130))
        self.assertIn("stopped", self.starling("status", "--run", "runs/ctr"))
        self.assertIn("--fresh", self.run_starling("train", "job.yaml").stderr)
        changed = self.run_starling("train", "job.yaml", "--resume", "--set", "data.batch_size=32", "--set", "train.staleness=inf")
        self.assertIn("data.batch_size was 64, is 32", changed.stderr)

    def test_scores_of_a_cut(self):
        self.generate(3000)
        told = self.starling("train", "job.yaml", "--set", "data.epochs=1")
        score = re.search(r"epoch 1 of 1: (AUC .*)", told).group(1)
        self.assertIn(score, self.starling("eval", "job.yaml", "--checkpoint", "cuts"))
        lines = (self.path / "data/test.tsv").read_text().splitlines()
        bare = [line.split("\t", 1)[1] if i % 2 else line for i, line in enumerate(lines)]
        for name, text in (("all", lines), ("bare", bare)):
            (self.path / f"{name}.tsv").write_text("\n".join(text) + "\n")
            self.starling("predict", "job.yaml", "--checkpoint", "cuts", "--input", f"{name}.tsv", "--output", f"{name}.txt")
        scores = [float(word) for word in (self.path / "all.txt").read_text().split()]
        self.assertEqual(len(scores), len(lines))
        self.assertEqual((self.path / "all.txt").read_text(), (self.path / "bare.txt").read_text())
        self.assertTrue(all(0 < score < 1 for score in scores))
        self.assertGreater(len(set(scores)), 10)

    def test_tables_of_another_job_start_a_new_one(self):
        self.generate(3000)
        first = self.starling("train", "job.yaml", "--set", "data.epochs=1")
        rows = re.findall(r"table ids: dim 5, adagrad, (\d+) rows", first)[-1]
        told = self.starling("train", "job.yaml", "--init-from", "cuts", "--set", "checkpoint.path=second", "--set", "name=second",
                             "--set", "data.epochs=1")
        self.assertIn(f"took {rows} rows", told)
        self.assertIn(f"table ids: dim 5, adagrad, {rows} rows, 0 updates", told)
        self.assertIn("3000 samples read, 3000 trained", told)

    def test_mistakes_are_named(self):
        self.generate(200)
        for arguments, word in ((("--resume",), "no cut to go on from"), (("--resume", "--init-from", "cuts"), "give one"),
                                (("--init-from", "nowhere"), "nowhere"), (("--proceses",), "--proceses"),
                                (("--set", "checkpoint.path=/proc/none"), "checkpoint.path"),
                                (("--processes", "--set", "data.train=[none.tsv]"), "none.tsv"),
                                (("--set", "cluster.token_file=none"), "none")):
            with self.subTest(arguments=arguments):
                ended = self.run_starling("train", "job.yaml", *arguments)
                self.assertEqual(ended.returncode, 1, ended.stdout)
                self.assertIn(word, ended.stderr)
        self.assertIn("a job file is needed", self.run_starling("train").stderr)
        self.assertIn("--checkpoint PATH is needed", self.run_starling("eval", "job.yaml").stderr)
        self.assertIn("--scheduler ADDRESS is needed", self.run_starling("trainer", "--job", "job.yaml").stderr)

    def test_an_asynchronous_job_goes_on_behind_what_its_cut_has(self):
        lines = 600000
        job = self.unique(lines)
        how = ("--processes", "--set", "checkpoint.path=cuts")
        child = self.start("train", job, *how)
        self.wait_for(lambda: self.trained("runs/unique") > lines // 20, "it does not train")
        child.send_signal(signal.SIGINT)
        self.assertIn("stopped, checkpoint cuts/cut-", self.end(child, 130))
        cut = self.starling("checkpoint", "show", next((self.path / "cuts").glob("cut-*")))
        before = re.search(r"table +seen +dim 1 +sgd +(\d+) rows", cut).group(1)
        told = self.starling("train", job, "--resume", *how)
        # Every line has a row, and what was trained after the cut is what the cut had not.
        rows, updates = re.findall(r"table seen: dim 1, sgd, (\d+) rows, (\d+) updates", told)[-1]
        self.assertEqual(int(rows), lines)
        self.assertEqual(int(updates), lines - int(before))


if __name__ == "__main__":
    unittest.main()
