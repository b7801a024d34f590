"""Training ctr_dnn on generated click logs: processes over grpc++, against the dense network alone, PyTorch and Paddle.

26 fields of 2 M keys, dim 16, 13 dense values, 429-400-400-400-1, batches of 512, adagrad on rows, adam on the network. A hub, a
ps and a trainer of two workers are processes on the same two cores, beside the same job in one process. The limit is dense_limit:
forward, backward and adam on ready tensors, two threads, in the same precision. PyTorch (rivals/torch_ctr.py) is one process of
two threads with sparse embeddings and its data ready in memory, tuned alike; STARLING_BENCH_PYTHON names a Python with a newer
one, which is shown without a bar. Paddle (rivals/paddle_ctr.py) is a server and a worker of two threads with its data in memory,
where rivals/setup.sh has been run. bfloat16 is left out where the trainer's probe says that it does not work. Rounds are
interleaved, rates are medians; ours are those of the last two thirds of each run, by its metrics.jsonl. Where the time goes: CPU
time of each process, and what the hub tells of its stages. The last row trains with 20 M rows that were there before, against 1 M.
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time

from run_bench import BENCH, output_of, row

PYTHON = "/usr/bin/python3"
JOB = """
name: bench
seed: 1
data: {{format: criteo, train: ["{folder}/train-*.tsv"], test: [], batch_size: 512, shuffle_samples: 50000, epochs: {epochs}}}
fields:
  - {{name: label, kind: label}}
{fields}
tables:
  ids: {{dim: 16, optimizer: {{adagrad: {{lr: 0.05}}}}, initializer: {{normal: {{std: 0.01}}}}}}
model: {{ctr_dnn: {{hidden: [400, 400, 400]}}}}
dense: {{optimizer: {{adam: {{lr: 0.001}}}}, home: trainer, sharing: hogwild, precision: {precision}}}
train: {{staleness: inf, threads: 2}}
cluster: {{protocol: "{protocol}", ps: 1, shards: 1, hubs: 1, trainers: 1}}
"""
FIELDS = "\n".join([f"  - {{name: I{i}, kind: dense, transforms: log}}" for i in range(1, 14)] +
                   [f"  - {{name: C{i}, table: ids}}" for i in range(1, 27)])
UNIT = "samples/s"
FLAT_ROWS = (1_000_000, 20_000_000)


def tuned(threads):
    """As the trainer tunes itself: kernels that know the CPU, and no thread that spins."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    core = "SkylakeX" if "avx512f" in flags else "Haswell"
    return os.environ | {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads),
                         "OMP_WAIT_POLICY": "passive"}


def told_by(*command, env):
    return json.loads(output_of(*command, env=env).splitlines()[-1])


class Watch(threading.Thread):
    """By role: the most memory and the CPU time of each process under `pid`; and what the hub told last of its stages."""

    def __init__(self, pid, starling, run):
        super().__init__(daemon=True)
        self.pid, self.status = pid, [str(starling), "status", "--json", "--run", str(run)]
        self.memory, self.cpu, self.hub = {}, {}, {}
        self.start()

    def run(self):
        while os.path.exists(f"/proc/{self.pid}/stat"):
            for _ in range(5):
                self.look()
                time.sleep(1)
            self.ask()

    def look(self):
        children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.pid)], capture_output=True, text=True, check=False)
        for pid in [self.pid, *map(int, children.stdout.split())]:
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                stat = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            peak = re.search(r"VmHWM:\s+(\d+) kB", status)
            if peak and len(words) > 1:
                self.memory[words[1]] = max(self.memory.get(words[1], 0), int(peak.group(1)) / 1024)
                self.cpu[words[1]] = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def ask(self):
        told = subprocess.run(self.status, capture_output=True, text=True, check=False).stdout
        for node in json.loads(told)["job"]["nodes"] if told.startswith("{") else []:
            if node["role"] == "ROLE_HUB" and node.get("rates"):
                self.hub = {rate["name"]: rate["value"] for rate in node["rates"]}


class Ours:
    """Runs of `starling train`: their rates, and what was seen of the last one."""

    def __init__(self, build, folder):
        self.build, self.folder, self.count = build, folder, 0
        self.watch, self.where = None, ""

    def rate(self, protocol, epochs, precision="float32", arguments=()):
        """Samples per second in the steady state."""
        self.count += 1
        path = pathlib.Path(self.folder, f"job-{self.count}.yaml")
        path.write_text(JOB.format(folder=self.folder, fields=FIELDS, epochs=epochs, protocol=protocol, precision=precision))
        run = pathlib.Path(self.folder, f"run-{self.count}")
        starling = self.build / "src" / "bin" / "starling"
        command = [str(starling), "train", str(path), "--run", str(run), *arguments]
        if protocol != "inproc":
            command.append("--processes")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.watch = Watch(process.pid, starling, run)
        out, errors = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(command[1:])}: {errors.strip()[-2000:]}")
        told = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        points = [(one["time_s"], one["samples"]) for one in told if "samples" in one]
        steady = [point for point in points if point[0] >= points[-1][0] / 3]
        self.where = re.search(r"of each worker: (.*)", out).group(1)
        return (steady[-1][1] - steady[0][1]) / (steady[-1][0] - steady[0][0])

    def rows_of_last(self):
        """Where the time and the memory went."""
        rows = [row(f"CPU time of the {role}", "s", time_s) for role, time_s in sorted(self.watch.cpu.items()) if role != "train"]
        rows += [row(f"time of each worker: {part.strip()}", "s", float(time_s))
                 for part, time_s in re.findall(r"([a-z ]+?) ([\d.]+) s", self.where)]
        rows += [row(f"hub: {name}", "", value) for name, value in sorted(self.watch.hub.items())]
        return rows + [row(f"memory of the {role}", "MB", mb) for role, mb in sorted(self.watch.memory.items())]


def rival_rate(python, program, data, seconds, module):
    """(rate, version); (None, why) where it cannot be had."""
    if not python or not os.path.exists(python):
        return None, "not installed"
    if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode != 0:
        return None, "not installed"
    told = told_by(python, BENCH / "rivals" / program, data, seconds, 2, env=tuned(2 if module == "torch" else 1))
    return told["samples_per_s"], told[module]


def median(rates):
    return statistics.median(rates) if rates and None not in rates else None


def flat_row(ours, build, folder, epochs):
    """The rate with many rows against that with few, in turns."""
    rates = {rows: [] for rows in FLAT_ROWS}
    for rows in FLAT_ROWS:
        subprocess.run([build / "bench" / "checkpoint" / "checkpoint_bench", "--make", f"{folder}/rows-{rows}", str(rows)],
                       check=True, capture_output=True)
    for _ in range(2):
        for rows in FLAT_ROWS:
            rates[rows].append(ours.rate("grpc++", epochs, arguments=["--init-from", f"{folder}/rows-{rows}"]))
    few, many = (median(rates[rows]) for rows in FLAT_ROWS)
    return row("train, processes, 20 M rows", UNIT, many, "1 M rows", few, bar=0.85)


def measure(ours, build, folder, rounds, epochs, seconds):
    """Rates by name, in rounds, and the versions of the rivals."""
    few = pathlib.Path(folder, "few.tsv")
    lines = pathlib.Path(folder, "train-0.tsv").read_text().splitlines(keepends=True)
    few.write_text("".join(lines[:200_000]))
    rivals = {"torch": (PYTHON, "torch_ctr.py", few, seconds, "torch"),
              "newer": (os.environ.get("STARLING_BENCH_PYTHON"), "torch_ctr.py", few, seconds, "torch"),
              "paddle": (str(build.parent / "rivals" / "bin" / "python"), "paddle_ctr.py", few, seconds, "paddle")}
    limit = build / "bench" / "train" / "dense_limit"
    rates, versions = {}, {}
    precisions = ["float32", "bfloat16"]
    for _ in range(rounds):
        for precision in list(precisions):
            try:
                rate = told_by(limit, 2, seconds, precision, env=tuned(1))["samples_per_s"]
            except RuntimeError:
                if precision == "float32":
                    raise
                precisions.remove(precision)
                continue
            rates.setdefault(f"dense {precision}", []).append(rate)
            rates.setdefault(f"processes {precision}", []).append(ours.rate("grpc++", epochs, precision))
        rates.setdefault("one", []).append(ours.rate("inproc", epochs))
        for name, rival in rivals.items():
            rate, versions[name] = rival_rate(*rival)
            rates.setdefault(name, []).append(rate)
    return {name: median(values) for name, values in rates.items()}, versions


def run(build, quick):
    samples, epochs, rounds, seconds = (200_000, 2, 1, 8) if quick else (1_000_000, 4, 3, 20)
    with tempfile.TemporaryDirectory(dir=build) as folder:
        subprocess.run([build / "src" / "bin" / "starling", "generate", "ctr", "--out", folder, "--samples", str(samples), "--test",
                        "1000", "--keys", "2000000"], check=True, capture_output=True)
        ours = Ours(build, folder)
        rates, versions = measure(ours, build, folder, rounds, epochs, seconds)
        rows = []
        for precision in ("float32", "bfloat16"):
            mine, work = rates.get(f"processes {precision}"), f"train, processes over grpc++, {precision}"
            if mine is None:
                rows.append(row(f"{work}: does not work on this machine", UNIT, None))
                continue
            # The rivals compute in float32; the bar asks for our fastest way, which has to reach the same AUC (tests/train).
            fastest = precision == "bfloat16" or rates.get("processes bfloat16") is None
            rows.append(row(work, UNIT, mine, "the dense network alone (the limit)", rates[f"dense {precision}"],
                            bar=0.6 if precision == "float32" else None))
            for name, title in (("torch", "PyTorch"), ("newer", "newer PyTorch"), ("paddle", "Paddle PS")):
                bar = 1.5 if fastest and name != "newer" and rates[name] else None
                rows.append(row(work, UNIT, mine, f"{title} {versions[name]}", rates[name], bar=bar))
        rows.append(row("train, one process, float32", UNIT, rates["one"], "processes over grpc++", rates["processes float32"], bar=1.0))
        ours.rate("grpc++", epochs)
        rows += ours.rows_of_last()
        if not quick:
            rows.append(flat_row(ours, build, folder, epochs))
    return rows
