#!/usr/bin/env python3
"""Whole jobs by `starling train`: every sample is trained once, models learn, synchronous jobs repeat to the last digit."""
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

CTR_JOB = """
name: ctr
seed: 7
data: {{format: criteo, train: ["{folder}/train-*.tsv"], test: ["{folder}/test.tsv"], batch_size: 128,
       shuffle_samples: 20000, epochs: 2}}
fields:
  - {{name: label, kind: label}}
{dense}
{keys}
tables:
  ids: {{dim: 5, optimizer: {{adagrad: {{lr: 0.05}}}}, initializer: {{normal: {{std: 0.01}}}}}}
model: {{deepfm: {{hidden: [32, 16]}}}}
dense: {{optimizer: {{adam: {{lr: 0.001}}}}}}
train: {{staleness: inf, threads: 1}}
cluster: {{ps: 1, shards: 2, hubs: 1, trainers: 1}}
""".replace("{dense}", "\n".join(f"  - {{{{name: I{i}, kind: dense, transforms: log}}}}" for i in range(1, 14))).replace(
    "{keys}", "\n".join(f"  - {{{{name: C{i}, table: ids}}}}" for i in range(1, 27)))


def starling(*arguments):
    with tempfile.TemporaryDirectory() as run:  # tests at the same time have jobs of the same name
        where = ("--run", run) if arguments[0] == "train" else ()
        return subprocess.run([PROGRAM, *map(str, arguments), *where], capture_output=True, text=True, timeout=900, check=False)


def text_of(path):
    try:
        return path.read_text().strip()
    except OSError:  # a thread that has ended
        return ""


class TrainTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        made = starling("generate", "ctr", "--out", cls.folder.name, "--samples", 20000, "--test", 4000, "--keys", 5000)
        assert made.returncode == 0, made.stderr
        cls.job = pathlib.Path(cls.folder.name, "job.yaml")
        cls.job.write_text(CTR_JOB.format(folder=cls.folder.name))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def train(self, job, *sets):
        ended = starling("train", job, *(word for one in sets for word in ("--set", one)))
        self.assertEqual(ended.returncode, 0, ended.stderr)
        read, trained, skipped = map(int, re.search(
            r"(\d+) samples read, (\d+) trained, (\d+) skipped by rule", ended.stdout).groups())
        self.assertEqual(read, trained + skipped)
        scores = re.findall(r"epoch \d+ of \d+: AUC ([\d.]+)  log loss ([\d.]+)", ended.stdout)
        return trained, [tuple(map(float, score)) for score in scores]

    def test_learns_what_can_be_learned_of_generated_data(self):
        best = float(pathlib.Path(self.folder.name, "best_auc").read_text())
        trained, scores = self.train(self.job)
        self.assertEqual(trained, 2 * 20000)
        self.assertEqual(len(scores), 2)
        self.assertGreater(scores[-1][0], 0.6)
        self.assertLess(scores[-1][0], best)

    def test_synchronous_jobs_repeat_and_do_not_depend_on_the_number_of_ps(self):
        runs = [self.train(self.job, "train.staleness=0", "train.threads=2", *sets)
                for sets in ((), (), ("cluster.ps=3", "cluster.shards=1"), ("train.tensor_fuse=false", "trainer.lanes=2"))]
        for run in runs[1:]:
            self.assertEqual(runs[0], run)

    def test_the_core_number_of_workers_is_the_number_of_a_trainers_lanes(self):
        with tempfile.TemporaryDirectory() as run:
            trainer = subprocess.Popen([PROGRAM, "train", self.job, "--run", run, "--set", "data.epochs=1000"],
                                       env=dict(os.environ, NETWORK_WORKER_CORE_NUMBER="3"), stdout=subprocess.DEVNULL)
            try:
                lanes = set()
                while len(lanes) < 3 and trainer.poll() is None:
                    names = pathlib.Path("/proc", str(trainer.pid), "task").glob("*/comm")
                    lanes = {name for name in map(text_of, names) if name.startswith("job-")}
                self.assertEqual(lanes, {"job-0", "job-1", "job-2"})
            finally:
                trainer.kill()
                trainer.wait()

    def test_bounded_and_unbounded_workers_train_every_sample_once(self):
        for sets in (("train.staleness=2", "train.threads=2"), ("train.threads=2", "cluster.hubs=2"),
                     ("trainer.prefetch=0",)):
            with self.subTest(sets=sets):
                self.assertEqual(self.train(self.job, *sets)[0], 2 * 20000)

    def test_gradients_merged_over_steps_train_every_sample_and_learn(self):
        # Adam makes a quarter of the steps, so it is behind the AUC of single ones; a broken sum learns nothing.
        trained, scores = self.train(self.job, "dense.merge_steps=4", "train.threads=2")
        self.assertEqual(trained, 2 * 20000)
        self.assertGreater(scores[-1][0], 0.6)

    def test_no_lookup_is_older_than_the_staleness_allows(self):
        for staleness, prefetch, threads, most in (("inf", 0, 1, 0), (2, 0, 2, 2), (1, 3, 2, 1), (3, 3, 2, 3), (0, 3, 2, 0)):
            with self.subTest(staleness=staleness, prefetch=prefetch, threads=threads):
                ended = starling("train", self.job, *(word for one in (
                    f"train.staleness={staleness}", f"trainer.prefetch={prefetch}", f"train.threads={threads}", "data.epochs=1")
                    for word in ("--set", one)))
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertRegex(ended.stdout, r"BLAS: \S+.*per worker")
                oldest, mean, told = re.search(r"ran (\d+) clocks ahead of the slowest worker at most, ([\d.]+) on average; "
                                               r"train.staleness is (\w+)", ended.stdout).groups()
                self.assertEqual(told, str(staleness))
                self.assertLessEqual(int(oldest), most)
                self.assertLessEqual(float(mean), int(oldest))

    def test_every_label_is_measured_and_exactly_on_demand(self):
        with tempfile.TemporaryDirectory() as run:
            job = pathlib.Path(run, "job.yaml")
            second = '  - {name: second, kind: label, column: I2, fallback: "0", transforms: {clip: {low: 0, high: 1}}}\n'
            job.write_text(self.job.read_text().replace("  - {name: I1,", second + "  - {name: I1,"))
            found = []
            for exact in ("false", "true"):
                ended = subprocess.run([PROGRAM, "train", str(job), "--run", run, "--set", f"train.exact_auc={exact}", "--set",
                                        "data.epochs=1", "--set", "train.staleness=0", "--set", "train.window_samples=5000", "--set",
                                        "tables.ids.optimizer={sgd: {lr: 0.000001}}", "--set", "dense.optimizer={sgd: {lr: 0.000001}}"],
                                       capture_output=True, text=True, timeout=900, check=False)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertRegex(ended.stdout, r"epoch 1 of 1: AUC 0.*\n  label 2: AUC 0")
                lines = [json.loads(line) for line in pathlib.Path(run, "metrics.jsonl").read_text().splitlines()]
                self.assertGreater(lines[-2]["loss"], 0)
                found.append([one["auc"] for one in (lines[-1]["evaluation"], *lines[-1]["evaluation"]["more_labels"])])
            # Predictions that have learned nothing crowd together in few buckets.
            self.assertNotEqual(found[0], found[1])
            for bucketed, exact in zip(*found, strict=True):
                self.assertAlmostEqual(bucketed, exact, delta=1e-3)

    def scores_of(self, folder, job, cuts):
        """What the newest cut makes of the test set, to the last digit."""
        out = pathlib.Path(folder, "scores")
        ended = starling("predict", job, "--checkpoint", cuts, "--input", pathlib.Path(self.folder.name, "test.tsv"), "--output", out)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return out.read_text()

    def test_variables_that_the_trainer_keeps_survive_a_stop_with_their_optimizer(self):
        """One worker that looks up nothing ahead: stopped, resumed and stopped again, it makes the steps of one never stopped."""
        with tempfile.TemporaryDirectory() as folder:
            job = pathlib.Path(folder, "job.yaml")
            text = CTR_JOB.format(folder=self.folder.name) + "trainer: {prefetch: 0}\n"
            job.write_text(text.replace("dense: {", "dense: {home: trainer, "))

            def command(name, *more):
                sets = ("data.epochs=3", f"checkpoint.path={folder}/{name}")
                return [PROGRAM, "train", str(job), "--run", f"{folder}/{name}-run", *more,
                        *(word for one in sets for word in ("--set", one))]

            for name in ("whole", "stopped"):
                child = subprocess.Popen(command(name), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                if name == "stopped":
                    metrics = pathlib.Path(folder, "stopped-run", "metrics.jsonl")
                    until = time.monotonic() + 300
                    while child.poll() is None and time.monotonic() < until and not (
                            metrics.exists() and re.search(r'"samples": [1-9]', metrics.read_text())):
                        time.sleep(0.02)
                    child.send_signal(signal.SIGTERM)
                _, errors = child.communicate(timeout=900)
                self.assertIn(child.returncode, (0,) if name == "whole" else (0, 130), errors)
            ended = subprocess.run(command("stopped", "--resume"), capture_output=True, text=True, timeout=900, check=False)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertEqual(self.scores_of(folder, job, f"{folder}/whole"), self.scores_of(folder, job, f"{folder}/stopped"))

    def test_batches_that_are_not_numbers_stop_the_job_or_are_left_out(self):
        explodes = ("dense.optimizer={sgd: {lr: 1000000}}", "train.gradient_scale=1000000")
        ended = starling("train", self.job, "--set", explodes[0], "--set", explodes[1])
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, r"batch 0/\d+/\d+ gives what is not a number: .*(field|variable|loss)")
        self.assertLess(self.train(self.job, *explodes, "train.on_nan=skip")[0], 2 * 20000)

    @unittest.skipUnless("avx2" in pathlib.Path("/proc/cpuinfo").read_text(), "the CPU has no AVX2: any kernel fits it")
    def test_a_blas_that_does_not_know_the_cpu_is_refused_unless_told(self):
        env = os.environ | {"OPENBLAS_CORETYPE": "Prescott"}
        for sets, code in (((), 1), (("--set", "trainer.slow_blas=true", "--set", "data.epochs=1"), 0)):
            ended = subprocess.run([PROGRAM, "train", str(self.job), *sets], capture_output=True, text=True, timeout=900,
                                   check=False, env=env)
            self.assertEqual(ended.returncode, code, ended.stderr)
            if code:
                self.assertRegex(ended.stderr, "Prescott kernels .*OPENBLAS_CORETYPE")

    def test_what_init_writes_trains_as_it_is(self):
        lines = {
            "csv": "user,age,click\n" + "".join(f"u{i % 9},{20 + i % 50},{i % 3 // 2}\n" for i in range(600)),
            "ratings": "".join(f"{1 + i // 3}::{i * 37 % 5000:07}::{i % 10 + 1}::{1362062307 + i}\n" for i in range(600)),
            "libsvm": "".join(f"{i % 2} {1 + i % 9}:1 {20 + i % 5}:0.5\n" for i in range(600)),
            "libffm": "".join(f"{i % 2} 0:{1 + i % 9}:1 1:{20 + i % 5}:0.5\n" for i in range(600)),
            "multislot": "".join(f"1 {i % 2} 2 {i % 9} {i % 7} 3 {i / 7:.2f} 0.5 1\n" for i in range(600)),
            "criteo": pathlib.Path(self.folder.name, "train-0.tsv").read_text(),
        }
        for name, text in lines.items():
            with self.subTest(format=name), tempfile.TemporaryDirectory() as folder:
                data, job = pathlib.Path(folder, "data"), pathlib.Path(folder, "job.yaml")
                data.write_text(text)
                made = starling("init", data, "--out", job)
                self.assertEqual(made.returncode, 0, made.stderr)
                self.assertGreater(self.train(job)[0], 500)

    def test_errors_name_what_is_wrong(self):
        for sets, word in ((("model={lr: {}}",), "lr"), (("data.train=[/nowhere/x]",), "/nowhere/x"),
                           (("model={deepfn: {}}",), "deepfm"), (("train.loss=softmax",), "two labels"),
                           (("train.staleness=0", "dense.sharing=hogwild"), "dense.sharing private"),
                           (("train.staleness=0", "dense.merge_steps=4"), "staleness 0"),
                           (("dense.home=trainer", "dense.merge_steps=4"), "dense.merge_steps"),
                           (("train.dump=/tmp/x", "train.dump_fields=[C99]"), "C99"),
                           (("model={torchscript: /nowhere/x.pt}",), "/nowhere/x.pt")):
            with self.subTest(sets=sets):
                ended = starling("train", self.job, *(word for one in sets for word in ("--set", one)))
                self.assertEqual(ended.returncode, 1)
                self.assertIn(word, ended.stderr)


if __name__ == "__main__":
    unittest.main()
