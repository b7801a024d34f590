#!/usr/bin/env python3
"""A synchronous job takes the steps that one process of PyTorch takes from the same weights, on the same batches."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from train_test import CTR_JOB, starling

PYTHON = "/usr/bin/python3"  # Debian's, whose torch is the libtorch we link
REFERENCE = pathlib.Path(__file__).with_name("torch_reference.py")
DUMPED = [f"C{i}" for i in range(1, 27)] + ["fm.weight"] + [f"deep.{i}.{part}" for i in range(3) for part in ("weight", "bias")]

SCRIPT = """
import sys
from typing import Dict
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(26 * 5 + 13, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def forward(self, fields: Dict[str, torch.Tensor], dense: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat([fields["C" + str(i)] for i in range(1, 27)] + [dense], 1))

torch.jit.script(Net()).save(sys.argv[1])
"""


def has_torch():
    return os.path.exists(PYTHON) and subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(has_torch(), "python3-torch is not installed")
class PytorchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        made = starling("generate", "ctr", "--out", cls.folder.name, "--samples", 20000, "--test", 4000, "--keys", 2000)
        assert made.returncode == 0, made.stderr
        cls.train = pathlib.Path(cls.folder.name, "train-0.tsv")
        cls.test = pathlib.Path(cls.folder.name, "test.tsv")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def compare(self, rows, dense, steps, batch, clip=0):
        """Losses of both, and the AUC on the test set of both when all samples are trained."""
        job = pathlib.Path(self.folder.name, "job.yaml")
        train = self.train
        if steps:
            train = pathlib.Path(self.folder.name, "first.tsv")
            train.write_text("".join(self.train.read_text().splitlines(keepends=True)[:steps * batch]))
        job.write_text(CTR_JOB.format(folder=self.folder.name))
        dump = pathlib.Path(self.folder.name, "dump.jsonl")
        sets = [f"data.train=[{train}]", f"data.test=[{self.test}]", f"data.batch_size={batch}", "data.shuffle_samples=0",
                "data.epochs=1", "train.staleness=0", f"train.clip_norm={clip}", f"train.dump={dump}", f"train.dump_fields=[{', '.join(DUMPED)}]",
                f"tables.ids.optimizer={{{rows[0]}: {{lr: {rows[1]}}}}}", f"dense.optimizer={{{dense[0]}: {{lr: {dense[1]}}}}}"]
        ended = starling("train", job, *(word for one in sets for word in ("--set", one)))
        self.assertEqual(ended.returncode, 0, ended.stderr)
        spec = pathlib.Path(self.folder.name, "spec.json")
        spec.write_text(json.dumps({"train": str(train), "test": None if steps else str(self.test), "dump": str(dump),
                                    "batch": batch, "steps": steps, "rows": rows, "dense": dense, "clip": clip}))
        reference = subprocess.run([PYTHON, REFERENCE, spec], capture_output=True, text=True, timeout=900, check=False)
        self.assertEqual(reference.returncode, 0, reference.stderr)
        with open(dump, encoding="ascii") as file:
            ours = [one["loss"] for one in map(json.loads, file) if one.get("id") == "0"]
        auc = float(re.findall(r"epoch 1 of 1: AUC ([\d.]+)", ended.stdout)[-1])
        return ours, json.loads(reference.stdout), auc

    def test_losses_agree_step_by_step(self):
        for rows in (("sgd", 0.1), ("adagrad", 0.02)):
            for dense in (("sgd", 0.1), ("adam", 0.001)):
                with self.subTest(rows=rows, dense=dense):
                    ours, reference, _ = self.compare(rows, dense, steps=200, batch=64)
                    self.assertEqual(len(ours), 200)
                    self.assertLess(reference["losses"][-1], reference["losses"][0])
                    for step, (a, b) in enumerate(zip(ours, reference["losses"], strict=True)):
                        self.assertAlmostEqual(a, b, delta=1e-4 * b, msg=f"step {step}")

    def test_clipped_gradients_make_the_steps_that_pytorch_makes(self):
        # A norm that nearly every gradient of the first steps is above; sgd, because adam hides a factor.
        ours, reference, _ = self.compare(("sgd", 0.1), ("sgd", 0.5), steps=100, batch=64, clip=0.02)
        free, _, _ = self.compare(("sgd", 0.1), ("sgd", 0.5), steps=100, batch=64)
        for step, (a, b) in enumerate(zip(ours, reference["losses"], strict=True)):
            self.assertAlmostEqual(a, b, delta=1e-4 * b, msg=f"step {step}")
        self.assertGreater(max(abs(a - b) for a, b in zip(ours, free, strict=True)), 1e-3)

    def test_auc_agrees_after_an_epoch(self):
        _, reference, auc = self.compare(("adagrad", 0.05), ("adam", 0.001), steps=0, batch=128)
        self.assertGreater(auc, 0.6)
        self.assertAlmostEqual(auc, reference["auc"], delta=0.002)

    def test_a_torchscript_file_trains(self):
        model = pathlib.Path(self.folder.name, "net.pt")
        source = pathlib.Path(self.folder.name, "net.py")  # torch reads the class's source
        source.write_text(SCRIPT)
        subprocess.run([PYTHON, source, model], check=True, capture_output=True)
        job = pathlib.Path(self.folder.name, "script.yaml")
        job.write_text(CTR_JOB.format(folder=self.folder.name))
        ended = starling("train", job, "--set", f"model={{torchscript: {model}}}", "--set", "train.threads=2")
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertGreater(float(re.findall(r"epoch 2 of 2: AUC ([\d.]+)", ended.stdout)[-1]), 0.6)


if __name__ == "__main__":
    unittest.main()
