#!/usr/bin/env python3
"""Whole jobs by `starling train`: every sample is trained once, models learn, synchronous jobs repeat to the last digit."""
import os
import pathlib
import re
import subprocess
import tempfile
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
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=900, check=False)


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
                for sets in ((), (), ("cluster.ps=3", "cluster.shards=1"))]
        self.assertEqual(runs[0], runs[1])
        self.assertEqual(runs[0], runs[2])

    def test_bounded_and_unbounded_workers_train_every_sample_once(self):
        for sets in (("train.staleness=2", "train.threads=2"), ("train.threads=2", "cluster.hubs=2"),
                     ("trainer.prefetch=0",)):
            with self.subTest(sets=sets):
                self.assertEqual(self.train(self.job, *sets)[0], 2 * 20000)

    def test_errors_name_what_is_wrong(self):
        for sets, word in ((("model={lr: {}}",), "lr"), (("data.train=[/nowhere/x]",), "/nowhere/x"),
                           (("model={deepfn: {}}",), "deepfm")):
            with self.subTest(sets=sets):
                ended = starling("train", self.job, *(word for one in sets for word in ("--set", one)))
                self.assertEqual(ended.returncode, 1)
                self.assertIn(word, ended.stderr)


if __name__ == "__main__":
    unittest.main()
