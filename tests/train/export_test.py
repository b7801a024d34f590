#!/usr/bin/env python3
"""`starling export` leaves what Python alone scores lines with, as `starling predict` does."""
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

from pytorch_test import PYTHON, has_torch
from train_test import CTR_JOB, starling

CSV_JOB = """
name: shop
seed: 11
data: {{format: csv, train: ["{folder}/train.csv"], batch_size: 64, epochs: 2,
       reader: {{csv: {{header: true, trim: true, label: "bought == yes"}}}}}}
fields:
  - {{name: user, table: users}}
  - {{name: item, table: items}}
  - {{name: tags, table: tags, separator: "|", pooling: mean, keys_max: 3, fallback: none}}
  - {{name: words, table: tags, separator: " ", salt: 5}}
  - {{name: age, table: ages, transforms: {{log: {{}}, bucketise: {{boundaries: [1, 2.5, 3.7]}}}}}}
  - {{name: pair, table: items, cross: [user, tags], keys_max: 2}}
  - {{name: price, kind: dense, transforms: {{clip: {{low: 1, high: 50}}, log: {{}}, normalise: {{mean: 2, std: 1.5}}}}}}
  - {{name: sizes, kind: dense, separator: ";", size: 2, fallback: "1;2"}}
{history}
tables:
  users: {{dim: 4, optimizer: {{adagrad: {{lr: 0.1}}}}, initializer: {{normal: {{std: 0.3}}}}}}
  items: {{dim: 4, optimizer: {{adagrad: {{lr: 0.1}}}}, initializer: {{uniform: {{low: -0.5, high: 0.25}}}}}}
  tags: {{dim: 4, optimizer: {{adam: {{lr: 0.01}}}}, initializer: {{truncated_normal: {{mean: 0.1, std: 0.4}}}}, admission: {{count: 3}}}}
  ages: {{dim: 4, optimizer: {{sgd: {{lr: 0.1}}}}, initializer: {{xavier: {{}}}}, storage: bfloat16}}
model: {model}
dense: {{optimizer: {{adam: {{lr: 0.01}}}}}}
cluster: {{ps: 2, shards: 1, hubs: 1, trainers: 1}}
checkpoint: {{path: "{folder}/cuts"}}
"""
HISTORY = '  - {name: history, table: items, separator: "|", pooling: none}'

SLOTS_JOB = """
name: slots
seed: 3
data: {{format: multislot, train: ["{folder}/train.txt"], batch_size: 64, epochs: 1}}
fields:
  - {{name: label, kind: label}}
  - {{name: first, table: ids}}
  - {{name: many, table: ids, transforms: hash}}
  - {{name: numbers, kind: dense, size: 2}}
tables:
  ids: {{dim: 3, optimizer: {{adagrad: {{lr: 0.1}}}}, initializer: {{normal: {{std: 0.5}}}}}}
model: {{dlrm: {{bottom: [8], top: [8]}}}}
cluster: {{ps: 1, shards: 1, hubs: 1, trainers: 1}}
checkpoint: {{path: "{folder}/cuts"}}
"""


def csv_lines(seed, lines, ids):
    """A header and lines; more ids than were trained are keys without rows."""
    draw = random.Random(seed)
    out = ["user, item, tags, words, age, price, sizes, history, bought"]
    for _ in range(lines):
        tags = "|".join(f"t{draw.randrange(ids)}" for _ in range(draw.randrange(6)))
        words = draw.choice(['"a ""b"" c"', "a", "", '"b, c"', "d  e"])
        sizes = draw.choice(["", "3;4.5", ";2", "0.25;"])
        history = "|".join(f"i{draw.randrange(ids)}" for _ in range(draw.randrange(5)))
        out.append(f"u{draw.randrange(ids)}, i{draw.randrange(ids)}, {tags}, {words}, {draw.randrange(90)}, "
                   f"{draw.choice(['', '-3', '7.25', '1e3'])}, {sizes}, {history}, {draw.choice(['yes', 'no'])}")
    return "\n".join(out) + "\n"


def slot_lines(seed, lines, ids):
    draw = random.Random(seed)
    return "".join(f"1 {draw.randrange(2)} 1 {draw.randrange(ids)} "
                   + " ".join(map(str, [n := draw.randrange(4), *(draw.randrange(ids) for _ in range(n))]))
                   + f" 2 {draw.random():.3f} {draw.randrange(9)}\n" for _ in range(lines))


@unittest.skipUnless(has_torch(), "python3-torch is not installed")
class ExportTest(unittest.TestCase):
    def setUp(self):
        self.held = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.held.name)
        self.addCleanup(self.held.cleanup)

    def run_ok(self, *arguments):
        ended = starling(*arguments)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return ended.stdout

    def check(self, job_text, input_text, *sets):
        """Trains, then compares the scores of both for every line."""
        job, lines = self.folder / "job.yaml", self.folder / "lines"
        job.write_text(job_text)
        lines.write_text(input_text)
        self.run_ok("train", job, *(word for one in sets for word in ("--set", one)))
        self.run_ok("predict", job, "--checkpoint", self.folder / "cuts", "--input", lines, "--output", self.folder / "scores",
                    *(word for one in sets for word in ("--set", one)))
        # By the settings that the run left: no job file is named.
        self.run_ok("export", "--checkpoint", self.folder / "cuts", "--to", self.folder / "model")
        scored = subprocess.run([PYTHON, self.folder / "model" / "score.py", lines], capture_output=True, text=True,
                                timeout=600, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})
        self.assertEqual(scored.returncode, 0, scored.stderr)
        ours = list(map(float, (self.folder / "scores").read_text().split()))
        theirs = list(map(float, scored.stdout.split()))
        self.assertGreaterEqual(len(ours), 200)
        self.assertGreater(max(ours) - min(ours), 0.01)
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            self.assertAlmostEqual(a, b, delta=1e-6, msg=f"line {number + 1}")

    def test_criteo_lines(self):
        self.run_ok("generate", "ctr", "--out", self.folder, "--samples", 4000, "--test", 300, "--keys", 1000)
        job = CTR_JOB.format(folder=self.folder) + f'checkpoint: {{path: "{self.folder}/cuts"}}\n'
        lines = (self.folder / "test.tsv").read_text().splitlines(keepends=True)
        # Half of them without their label's column.
        lines = [line.partition("\t")[2] if number % 2 else line for number, line in enumerate(lines)]
        self.check(job, "".join(lines), "data.epochs=1")

    def test_csv_lines_with_transforms_and_pooled_fields(self):
        (self.folder / "train.csv").write_text(csv_lines(1, 600, 30))
        self.check(CSV_JOB.format(folder=self.folder, history="", model="{wide_deep: {hidden: [16]}}"), csv_lines(2, 250, 60))

    def test_csv_lines_with_a_history(self):
        (self.folder / "train.csv").write_text(csv_lines(3, 400, 30))
        model = "{din: {target: item, history: history}}"
        self.check(CSV_JOB.format(folder=self.folder, history=HISTORY, model=model), csv_lines(4, 200, 60))

    def test_multislot_lines(self):
        (self.folder / "train.txt").write_text(slot_lines(5, 500, 40))
        self.check(SLOTS_JOB.format(folder=self.folder), slot_lines(6, 200, 80))

    def test_what_cannot_be_exported_is_named(self):
        (self.folder / "train.txt").write_text(slot_lines(5, 100, 40))
        job = self.folder / "job.yaml"
        job.write_text(SLOTS_JOB.format(folder=self.folder))
        self.run_ok("train", job)
        for sets, word in ((("data.format=libsvm",), "data.format libsvm"), (("model={dlrm: {bottom: [9]}}",), "bottom.0.weight")):
            ended = starling("export", job, "--checkpoint", self.folder / "cuts", "--to", self.folder / "model",
                             *(word for one in sets for word in ("--set", one)))
            self.assertEqual(ended.returncode, 1)
            self.assertIn(word, ended.stderr)
        (self.folder / "cuts" / "settings").unlink()
        ended = starling("export", "--checkpoint", self.folder / "cuts", "--to", self.folder / "model")
        self.assertIn("name its job file", ended.stderr)


if __name__ == "__main__":
    unittest.main()
