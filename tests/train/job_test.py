#!/usr/bin/env python3
"""Whole jobs that are stopped, killed, resumed, joined and run as processes whose parts die: the same bits, every sample once."""
import array
import json
import os
import pathlib
import re
import resource
import shlex
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
data: {format: criteo, train: ["data/train-*.tsv"], test: ["data/test.tsv"], batch_size: 64, shuffle_samples: 500, epochs: 4}
fields:
  - {name: label, kind: label}
  - {name: I1, kind: dense, transforms: log}
  - {name: I2, kind: dense, transforms: log}
  - {name: C20, table: ids}
  - {name: C22, table: ids}
  - {name: C24, table: ids}
  - {name: C26, table: ids}
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
# One key per line in a table that sums gradients. Nothing else learns, so every score is 0.5 and every gradient of a line is
# exactly (0.5 - label) / batch_size: a row has that weight when its line was trained once.
UNIQUE = """
name: unique
seed: 7
data: {format: csv, train: ["unique-*.csv"], batch_size: 4, epochs: 1, reader: {csv: {header: true}}}
fields:
  - {name: label, kind: label}
  - {name: line, table: seen}
  - {name: word, table: words}
tables:
  seen: {dim: 1, optimizer: {sum: {}}}
  words: {dim: 1, optimizer: {sgd: {lr: 0}}}
model: {lr: {}}
dense: {optimizer: {sgd: {lr: 0}}}
train: {staleness: inf, threads: 1}
cluster: {ps: 2, shards: 1, hubs: 2, trainers: 2}
checkpoint: {path: cuts}
scheduler: {lease_ms: 3000}
hub: {lease_ms: 3000}
"""
UNIQUE_FILES = 8


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

    def generate(self, samples=6000, files=3, keys=20000, test=1000):
        self.starling("generate", "ctr", "--out", "data", "--samples", samples, "--test", test, "--keys", keys)
        lines = (self.path / "data/train-0.tsv").read_text().splitlines(keepends=True)
        for i in range(files):
            (self.path / f"data/train-{i}.tsv").write_text("".join(lines[samples * i // files:samples * (i + 1) // files]))
        # Its path makes the processes of this test known by their arguments.
        job = self.path / "job.yaml"
        job.write_text(JOB)
        return job

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

    def processes(self, name):
        found = subprocess.run(["pgrep", "-f", "--", f"--name {name} .*{self.path.name}|{self.path.name}.*--name {name} "],
                               capture_output=True, text=True, check=False)
        return [int(word) for word in found.stdout.split()]

    def kill(self, name):
        for victim in self.wait_for(lambda: self.processes(name), f"no {name}"):
            os.kill(victim, signal.SIGKILL)

    def kill_scheduler(self):
        found = subprocess.run(["pgrep", "-f", "--", f"starling scheduler .*{self.path.name}"], capture_output=True, text=True,
                               check=False)
        os.kill(int(found.stdout.split()[0]), signal.SIGKILL)

    def wait_for_more(self, run="runs/ctr"):
        before = self.trained(run)
        self.wait_for(lambda: self.trained(run) > before, "it does not train")

    def scheduler_of(self, run):
        found = re.search(r"scheduler: (\S+)", (self.path / run / "state").read_text())
        return found and found.group(1)

    def samples_before(self, batches):
        """Of a job of generate(): what so many batches of its synchronous order held."""
        whole, rest = divmod(batches, 96)
        files, rest = divmod(rest, 32)
        return whole * 6000 + files * 2000 + rest * 64

    def check_resumed(self, *how, victims=()):
        """Stopped, stopped while it starts, killed, and then left to its end: the bits of a job that was left alone."""
        job = self.generate()
        child = self.start("train", job, "--set", "data.epochs=100000", *how)
        self.wait_for_more()
        for victim in victims:
            self.kill(victim)
            self.wait_for_more()
        child.send_signal(signal.SIGTERM)
        told = self.end(child, 130)
        for victim in victims:
            self.assertIn(f"{victim} died with status 137; it is started again", told)
        resume = shlex.split(re.search(r"Go on with: starling (train .* --resume)", told).group(1))
        self.assertEqual("--processes" in resume, "--processes" in how)

        child = self.start(*resume)
        (self.path / "runs/ctr/state").unlink()
        self.wait_for((self.path / "runs/ctr/state").exists, "it does not start")
        child.send_signal(signal.SIGTERM)
        self.end(child, 130)

        child = self.start(*resume)
        self.wait_for_more()
        child.kill()
        child.communicate()
        self.wait_for(lambda: not self.processes(r"\S+"), "processes are left behind")

        epochs = self.trained() // 6000 + 2
        told = self.starling(*resume, "--set", f"data.epochs={epochs}")
        self.assertIn("going on with job 'ctr'", told)
        counts = re.search(r"(\d+) batches were trained before the cut; since then (\d+) samples read, (\d+) trained, 0 sk", told)
        batches, read, trained = map(int, counts.groups())
        self.assertEqual(read, trained)
        self.assertEqual(self.samples_before(batches) + trained, epochs * 6000)
        self.starling("train", job, "--set", "checkpoint.path=whole", "--run", "whole-run", "--set", f"data.epochs={epochs}")
        self.assertEqual(self.bits("whole"), self.bits("cuts"))

    def test_stopped_killed_and_resumed_gives_the_same_bits_in_one_process(self):
        self.check_resumed()

    def test_stopped_killed_and_resumed_gives_the_same_bits_as_processes(self):
        self.check_resumed("--processes", "--set", "cluster.trainers=2", "--set", "train.threads=1", "--set", "cluster.hubs=2",
                           victims=("trainer-1", "hub-1"))

    def test_a_job_that_is_done_trains_on(self):
        job = self.generate()
        self.starling("train", job, "--set", "data.epochs=1")
        told = self.starling("train", job, "--resume", "--set", "data.epochs=2")
        self.assertIn("96 batches were trained before the cut; since then 6000 samples read, 6000 trained", told)
        self.starling("train", job, "--set", "checkpoint.path=whole", "--run", "whole-run", "--set", "data.epochs=2")
        self.assertEqual(self.bits("whole"), self.bits("cuts"))

    def test_a_second_signal_ends_it_at_once(self):
        job = self.generate()
        child = self.start("train", job, "--processes", "--set", "data.epochs=100000", "--set", "scheduler.lease_ms=12000")
        self.wait_for_more()
        # No cut without its hub.
        for process in self.processes("hub-0"):
            os.kill(process, signal.SIGSTOP)
        child.send_signal(signal.SIGINT)
        while "a checkpoint is made first" not in child.stdout.readline():
            self.assertIsNone(child.poll())
        child.send_signal(signal.SIGINT)
        self.end(child, 130)
        self.assertEqual(self.processes(r"\S+"), [])
        self.assertEqual(list((self.path / "cuts").glob("cut-*/manifest*")), [])

    def test_a_second_signal_ends_one_process_at_once(self):
        job = self.generate()
        child = self.start("train", job, "--set", "data.epochs=100000")
        self.wait_for_more()
        # Both are there when it looks: no cut can be made in between.
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            child.send_signal(number)
        self.end(child, -signal.SIGTERM)
        self.assertEqual(list((self.path / "cuts").glob("cut-*/manifest*")), [])

    def test_it_is_evaluated_every_few_minutes(self):
        job = self.generate()
        child = self.start("train", job, "--set", "data.epochs=100000", "--set", "train.evaluate_minutes=0.005")
        metrics = self.path / "runs/ctr/metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_text().count('"evaluation"') > 2, "it is not evaluated")
        child.send_signal(signal.SIGTERM)
        self.assertRegex(self.end(child, 130), r"step \d+: AUC")

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

    def unique(self, lines):
        for i in range(UNIQUE_FILES):
            rows = "".join(f"{j % 2},line{j},word{j % 2}\n" for j in range(i, lines, UNIQUE_FILES))
            (self.path / f"unique-{i}.csv").write_text("label,line,word\n" + rows)
        job = self.path / "unique.yaml"
        job.write_text(UNIQUE)
        return job

    def check_once(self, told, lines, updates=None):
        """Every line was trained once, says the table that sums gradients, and was counted once, whichever hubs died."""
        self.assertIn(f"{updates or lines} samples read, {updates or lines} trained, 0 skipped by rule", told)
        self.assertIn(f"table seen: dim 1, sum, {lines} rows, {updates or lines} updates", told)
        self.bits("cuts")
        npy = (self.path / "cuts-export/seen.weights.npy").read_bytes()
        weights = array.array("f", npy[10 + int.from_bytes(npy[8:10], "little"):])
        self.assertEqual(len(weights), lines)
        self.assertEqual(set(weights), {0.125, -0.125})

    def test_whoever_dies_or_joins_every_sample_is_trained_once(self):
        lines = 120000
        job = self.unique(lines)
        (self.path / "token").write_text("ours")
        child = self.start("train", job, "--processes", "--set", "cluster.token_file=token")
        self.wait_for_more("runs/unique")
        address = self.scheduler_of("runs/unique")
        # Whoever joins now finds a hub that is not known to be dead yet.
        self.kill("hub-1")
        late = self.start("trainer", "--job", job, "--scheduler", address, "--name", "late", "--run", "runs/unique", "--set",
                          "cluster.token_file=token")
        self.wait_for(lambda: self.samples_of("late", address), "the late one gets nothing")
        self.kill("trainer-1")
        self.kill_scheduler()
        # Whoever leads last tells of the end.
        told = self.end(child, 0) + self.end(late, 0)
        self.assertIn("trainer-1 died with status 137; its work is dealt to others", told)
        self.assertIn("hub-1 died with status 137; its work is dealt to others", told)
        self.assertIn("scheduler died with status 137; it is started again", told)
        self.check_once(told, lines)

    def test_a_trainer_that_joins_a_synchronous_job_gets_its_share(self):
        lines = 60000
        job = self.unique(lines)
        sets = ("--set", "train.staleness=0")
        child = self.start("train", job, "--processes", *sets)
        self.wait_for_more("runs/unique")
        address = self.scheduler_of("runs/unique")
        late = self.start("trainer", "--job", job, "--scheduler", address, "--name", "late", "--run", "runs/unique", *sets)
        self.wait_for(lambda: self.samples_of("late", address), "the late one gets nothing")
        # Whoever takes the place of one that had a seat has it, and so does a hub that comes anew.
        self.kill("trainer-1")
        self.kill("hub-1")
        told = self.end(child, 0) + self.end(late, 0)
        self.assertIn("trainer-1 died with status 137; it is started again", told)
        self.assertIn("hub-1 died with status 137; it is started again", told)
        self.check_once(told, lines)

    def test_processes_with_another_token_stay_outside(self):
        lines = 20000
        job = self.unique(lines)
        (self.path / "token").write_text("ours")
        (self.path / "other").write_text("theirs")
        child = self.start("train", job, "--processes", "--set", "cluster.token_file=token")
        self.wait_for_more("runs/unique")
        stranger = self.run_starling("trainer", "--job", job, "--scheduler", self.scheduler_of("runs/unique"), "--name", "stranger",
                                     "--set", "cluster.token_file=other")
        self.assertEqual(stranger.returncode, 1)
        self.assertIn("token", stranger.stderr)
        told = self.end(child, 0)
        self.check_once(told, lines)

    def samples_of(self, name, address):
        token = ("--set", "cluster.token_file=token") if (self.path / "token").exists() else ()
        asked = self.run_starling("status", "--scheduler", address, "--json", *token)
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

    def test_a_killed_trainer_costs_no_quality(self):
        job = self.generate(60000, keys=2000, test=4000)
        scores = []
        for victim in ((), ("trainer-1",)):
            run = f"run-{len(victim)}"
            child = self.start("train", job, "--processes", "--fresh", "--run", run, "--set", "cluster.trainers=2", "--set",
                               "train.staleness=inf", "--set", "data.batch_size=16", "--set", "train.threads=1", "--set", "data.epochs=1")
            self.wait_for_more(run)
            for name in victim:
                self.kill(name)
            told = self.end(child, 0)
            self.assertEqual("trainer-1 died" in told, bool(victim))
            self.assertIn("60000 samples read, 60000 trained, 0 skipped", told)
            scores.append(float(re.search(r"epoch 1 of 1: AUC ([\d.]+)", told).group(1)))
        self.assertGreater(scores[0], 0.55)
        self.assertAlmostEqual(scores[0], scores[1], delta=0.01)

    def test_the_best_cut_is_kept_and_a_full_disk_costs_only_the_cut(self):
        job = self.generate()
        told = self.starling("train", job, "--set", "train.evaluate_steps=50", "--set", "data.epochs=20")
        self.assertIn("(the best so far)", told)
        cuts = list((self.path / "cuts/best").glob("cut-*"))
        self.assertEqual(len(cuts), 1, told)
        evaluated = [json.loads(line)["evaluation"] for line in (self.path / "runs/ctr/metrics.jsonl").read_text().splitlines()
                     if "evaluation" in line]
        self.assertGreater(len(evaluated), 20)
        self.assertIn("AUC", self.starling("eval", job, "--checkpoint", "cuts/best"))

        newest = self.starling("checkpoint", "show", "cuts")
        def fill_disk():
            resource.setrlimit(resource.RLIMIT_FSIZE, (32768, 32768))
        # A file that is too large is an error, not a signal, as Python has it.
        full = subprocess.run([PROGRAM, "train", job, "--resume", "--set", "data.epochs=21"], cwd=self.path, capture_output=True,
                              text=True, check=False, timeout=PATIENCE_S, preexec_fn=fill_disk, restore_signals=False)
        self.assertEqual(full.returncode, 1, full.stdout)
        self.assertIn("the last checkpoint", full.stderr)
        self.assertIn("File too large", full.stderr)
        self.assertEqual(newest, self.starling("checkpoint", "show", "cuts"))
        self.assertIn("since then 6000 samples read, 6000 trained",
                      self.starling("train", job, "--resume", "--set", "data.epochs=21"))

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
        lines = 80000
        job = self.unique(lines)
        child = self.start("train", job, "--processes")
        self.wait_for_more("runs/unique")
        child.send_signal(signal.SIGINT)
        self.assertIn("stopped, checkpoint cuts/cut-", self.end(child, 130))
        cut = self.starling("checkpoint", "show", next((self.path / "cuts").glob("cut-*")))
        before = int(re.search(r"table +seen +dim 1 +sum +(\d+) rows", cut).group(1))
        told = self.starling("train", job, "--processes", "--resume")
        self.assertIn(f"since then {lines - before} samples read, {lines - before} trained", told)
        self.check_once(told, lines, lines - before)


if __name__ == "__main__":
    unittest.main()
