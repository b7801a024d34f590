#!/usr/bin/env python3
"""The examples on public data reach the AUC that one-core reference programs reach, however many ps and workers train them.

The references (README.md of the shared data): adult lr 0.910, fm 0.913; movietweetings by time lr 0.730, fm 0.755. Our fm on
adult ends above its reference, so what is asked of all four is not to be below by more than 0.003, and to stay within 0.003 of
what the examples' READMEs say.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from train_test import CTR_JOB, starling

PROGRAM = os.environ["STARLING_TEST_PROGRAM"]
DATA = pathlib.Path(os.environ["STARLING_TEST_DATA"])
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
LR = ("model={lr: {}}", "tables.ids.dim=1")

# (example, model): the reference, and what the example's README says.
KNOWN = {("adult", "lr"): (0.910, 0.912), ("adult", "fm"): (0.913, 0.926),
         ("movies", "lr"): (0.730, 0.729), ("movies", "fm"): (0.755, 0.757)}
DIN = 0.766
SYNCHRONOUS = [("cluster.ps=1", "train.threads=1"), ("cluster.ps=3", "train.threads=1"),
               ("cluster.ps=1", "train.threads=2"), ("cluster.ps=3", "train.threads=2")]
ASYNCHRONOUS = [("train.staleness=inf", "train.threads=2"),
                ("train.staleness=inf", "train.threads=2", "dense.home=trainer", "dense.sharing=hogwild"),
                ("train.staleness=inf", "train.threads=2", "dense.pull_every=4", "dense.sharing=hogwild")]


def auc_of(job, sets, epochs=3):
    with tempfile.TemporaryDirectory(prefix="starling-") as run:
        ended = subprocess.run([PROGRAM, "train", str(job), "--run", run,
                                *(word for one in sets for word in ("--set", one))],
                               capture_output=True, text=True, timeout=900, check=False)
    if ended.returncode != 0:
        raise AssertionError(ended.stderr)
    return float(re.findall(rf"epoch {epochs} of {epochs}: AUC ([\d.]+)", ended.stdout)[-1])


class QualityTest(unittest.TestCase):
    def check_example(self, example, files):
        job = EXAMPLES / example / "job.yaml"
        runs = {}
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for model in ("lr", "fm"):
                for sets in SYNCHRONOUS + ASYNCHRONOUS:
                    runs[model, sets] = pool.submit(auc_of, job, files + sets + (LR if model == "lr" else ()))
        for model in ("lr", "fm"):
            reference, said = KNOWN[example, model]
            for sets in SYNCHRONOUS + ASYNCHRONOUS:
                auc = runs[model, sets].result()
                room = 0.003 if sets in SYNCHRONOUS else 0.01
                with self.subTest(model=model, sets=sets):
                    self.assertGreater(auc, reference - room)
                    self.assertAlmostEqual(auc, said, delta=room)
            # Synchronous runs do not depend on the number of ps.
            for one, three in (SYNCHRONOUS[:2], SYNCHRONOUS[2:]):
                self.assertEqual(runs[model, one].result(), runs[model, three].result())

    @unittest.skipUnless((DATA / "adult").is_dir(), "the shared data set adult is not here")
    def test_adult(self):
        folder = DATA / "adult"
        self.check_example("adult", (f"data.train=[{folder}/adult.data]", f"data.test=[{folder}/adult.test]"))

    @unittest.skipUnless((DATA / "movietweetings").is_dir(), "the shared data set movietweetings is not here")
    def test_movies_by_time(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["python3", EXAMPLES / "movies" / "prepare.py", DATA / "movietweetings", folder], check=True,
                           capture_output=True)
            files = (f"data.train=[{folder}/ratings.dat]", f"data.test=[{folder}/ratings.dat]")
            self.check_example("movies", files)
            # din's attention over a history, with the same bits on one ps and on two.
            runs = [auc_of(EXAMPLES / "din" / "job.yaml", files + sets, 2) for sets in ((), ("cluster.ps=2",))]
            self.assertEqual(runs[0], runs[1])
            self.assertAlmostEqual(runs[0], DIN, delta=0.01)

    def test_bfloat16_learns_what_float32_does(self):
        with tempfile.TemporaryDirectory() as folder:
            starling("generate", "ctr", "--out", folder, "--samples", 60000, "--test", 20000, "--keys", 5000)
            job = pathlib.Path(folder, "job.yaml")
            job.write_text(CTR_JOB.format(folder=folder))
            sets = ("train.staleness=0", "data.epochs=1", "model={deepfm: {hidden: [128, 128]}}")
            try:
                half = auc_of(job, (*sets, "dense.precision=bfloat16"), 1)
            except AssertionError as error:
                if "bfloat16 does not work on this machine" not in str(error):
                    raise
                self.skipTest("products in bfloat16 do not work on this machine")
            self.assertAlmostEqual(half, auc_of(job, sets, 1), delta=0.001)


if __name__ == "__main__":
    unittest.main()
