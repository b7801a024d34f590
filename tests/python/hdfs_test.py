"""Samples and cuts on a real HDFS: a stock gRPC client trains and saves, everything is killed, and `starling checkpoint` lists,
verifies, exports and restores what is there, into another number of shards; a whole job reads its files from there.
"""

import getpass
import gzip
import http.client
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

import stock_client_test as stock

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "hdfs.py"
EXIT_MISSING = 3
COMMITTED, FAILED = 4, 5  # of CutPhase

JOB = """
name: far
data: {{format: csv, train: ["{data}/part-*"], batch_size: 8, epochs: 1, reader: {{csv: {{header: true}}}}}}
fields:
  - {{name: label, kind: label}}
  - {{name: line, table: seen}}
tables:
  seen: {{dim: 1, optimizer: {{sum: {{}}}}}}
model: {{lr: {{}}}}
checkpoint: {{path: "{cuts}"}}
"""


def run_tool(*arguments):
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False)


class HdfsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        place = os.path.join(folder.name, "hdfs")
        up = run_tool("up", "--folder", place, "--datanodes", "1", "--owner-pid", str(os.getpid()))
        if up.returncode == EXIT_MISSING and os.environ.get("CI") != "true":
            raise unittest.SkipTest(up.stdout + up.stderr)
        if up.returncode != 0:
            raise AssertionError(f"no HDFS: {up.stdout}{up.stderr}")
        cls.addClassCleanup(run_tool, "down", "--folder", place)
        told = json.loads(up.stdout[up.stdout.index("{"):])
        cls.port = told["http_port"]
        cls.url = f"hdfs://127.0.0.1:{cls.port}/tmp/cuts"

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.processes = []

    def starling(self, *arguments, status=0):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
        result = subprocess.run([stock.PROGRAM, *arguments], capture_output=True, text=True, check=False,
                                env=environment, timeout=stock.PATIENCE_S * 4)
        self.assertEqual(result.returncode, status, f"{arguments}: {result.stdout}{result.stderr}")
        return result.stdout if status == 0 else result.stderr

    def start(self, *arguments):
        log = open(os.path.join(self.folder.name, "log"), "a", encoding="utf-8")
        self.addCleanup(log.close)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STARLING_")}
        process = subprocess.Popen([stock.PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=log, text=True,
                                   env=environment)
        self.processes.append(process)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process.stdout.readline().strip().removeprefix("grpc://")

    def start_job(self, shards):
        scheduler = self.start("scheduler", "--listen", "grpc://127.0.0.1:0", "--set", "cluster.ps=1", "--set",
                               f"checkpoint.path={self.url}", "--set", "scheduler.lease_ms=30000")
        self.start("ps", "--scheduler", f"grpc://{scheduler}", "--name", "ps-0", "--listen", "grpc://127.0.0.1:0",
                   "--set", f"cluster.shards={shards}")
        return scheduler

    def kill_job(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()

    def save(self, client):
        request = client.request(session=client.session, number=client.next_number())
        request.save_job.SetInParent()
        reply = client.check(client.scheduler.Save(request, timeout=stock.PATIENCE_S)).save_job_reply
        end = time.monotonic() + stock.PATIENCE_S
        while reply.cut.phase != COMMITTED:
            self.assertNotEqual(reply.cut.phase, FAILED, reply.cut.error)
            self.assertLess(time.monotonic(), end, "the cut is not committed")
            time.sleep(0.05)
            request = client.request()
            request.save_job.action = 1
            request.save_job.cut_id = reply.cut.cut_id
            reply = client.check(client.scheduler.Save(request, timeout=stock.PATIENCE_S)).save_job_reply

    def test_a_cut_on_hdfs_is_listed_verified_exported_and_restored(self):
        client = stock.Client(self.start_job(shards=2))
        client.wait_for_map(2)
        stock.StockClientTest.create(self, client)
        keys = list(range(300))
        client.push_grad("t", keys, [[float(key), 1.0, 2.0, 3.0] for key in keys])
        expected = client.pull("t", keys)
        self.save(client)
        client.push_grad("t", keys, [[1.0] * stock.DIM for _ in keys])
        client.close()
        self.kill_job()

        self.assertRegex(self.starling("checkpoint", "ls", self.url), r"(?m)^ +1  full +-  all +300 ")
        self.assertRegex(self.starling("checkpoint", "show", self.url), r"table +t +dim 4 +sgd +300 rows")
        self.assertIn("all as written", self.starling("checkpoint", "verify", self.url, "--all"))
        out = os.path.join(self.folder.name, "out")
        self.assertIn("t: 300 rows", self.starling("checkpoint", "export", self.url, "--to", out, "--format", "csv"))
        with open(os.path.join(out, "t.csv"), encoding="ascii") as file:
            rows = dict((int(key), [float(x) for x in values]) for key, *values in
                        (line.split(",") for line in file.read().splitlines()[1:]))
        self.assertEqual([rows[key] for key in keys], expected)

        scheduler = self.start_job(shards=3)
        told = self.starling("checkpoint", "restore", self.url, "--scheduler", f"grpc://{scheduler}")
        self.assertIn("cut 1 restored: 300 rows", told)
        self.assertIn("training in generation 2", told)
        client = stock.Client(scheduler)
        self.addCleanup(client.close)
        client.wait_for_map(3)
        self.assertEqual(client.pull("t", keys), expected)

    def put(self, path, content):
        """As curl does: the name node tells which data node takes the bytes."""
        location = f"http://127.0.0.1:{self.port}/webhdfs/v1{path}?op=CREATE&overwrite=true&user.name={getpass.getuser()}"
        for body in (None, content):
            host, rest = location.removeprefix("http://").split("/", 1)
            connection = http.client.HTTPConnection(host, timeout=stock.PATIENCE_S)
            self.addCleanup(connection.close)
            connection.request("PUT", f"/{rest}", body=body)
            reply = connection.getresponse()
            self.assertIn(reply.status, (201, 307), reply.read())
            location = reply.headers.get("Location")

    def test_a_job_reads_its_files_from_hdfs_and_goes_on_from_a_cut_there(self):
        for part in range(4):
            text = "label,line\n" + "".join(f"{line % 2},line{line}\n" for line in range(part, 2000, 4))
            packed = gzip.compress(text.encode()) if part % 2 else text.encode()
            self.put(f"/tmp/data/part-{part}.csv{'.gz' if part % 2 else ''}", packed)
        self.put("/tmp/data/other.csv", b"not, asked, for\n")
        data = f"hdfs://127.0.0.1:{self.port}/tmp/data"
        job = pathlib.Path(self.folder.name) / "job.yaml"
        job.write_text(JOB.format(data=data, cuts=f"{self.url}-job"), encoding="utf-8")
        run = ("--run", os.path.join(self.folder.name, "run"))
        self.assertIn("keys of seen", self.starling("data", "show", str(job), "-n", "2"))
        self.assertIn("2000 samples read, 2000 trained, 0 skipped", self.starling("train", str(job), *run))
        told = self.starling("train", str(job), *run, "--resume", "--set", "data.epochs=2")
        self.assertIn("since then 2000 samples read, 2000 trained", told)
        self.assertRegex(self.starling("checkpoint", "show", f"{self.url}-job"), r"table +seen +dim 1 +sum +2000 rows")
        missing = self.starling("train", str(job), "--run", f"{run[1]}-2", "--set", f"data.train=['{data}/none-*']", "--set",
                                "checkpoint.path=''", status=1)
        self.assertIn(f"{data}/none-*: no file matches", missing)


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
