"""Training ctr_dnn on generated click logs: processes over grpc++, against the dense network alone and PyTorch.

26 fields of 2 M keys, dim 16, 13 dense values, 429-400-400-400-1, batches of 512, adagrad on rows, adam on the network. A hub, a
ps and a trainer of two workers are processes on the same two cores, beside the same job in one process. The limit is dense_limit:
forward, backward and adam on ready tensors, two threads. PyTorch (rivals/torch_ctr.py) is one process of two threads with sparse
embeddings and its data ready in memory, tuned alike; STARLING_BENCH_PYTHON names a Python with a newer one, which is shown without
a bar. Rounds are interleaved, rates are medians; ours are those of the last two thirds of each run, by its metrics.jsonl.
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

from run_bench import BENCH, row

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
dense: {{optimizer: {{adam: {{lr: 0.001}}}}, home: trainer, sharing: hogwild}}
train: {{staleness: inf, threads: 2}}
cluster: {{protocol: "{protocol}", ps: 1, shards: 1, hubs: 1, trainers: 1}}
"""
FIELDS = "\n".join([f"  - {{name: I{i}, kind: dense, transforms: log}}" for i in range(1, 14)] +
                   [f"  - {{name: C{i}, table: ids}}" for i in range(1, 27)])


def tuned(threads):
    """As the trainer tunes itself: kernels that know the CPU, and no thread that spins."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    core = "SkylakeX" if "avx512f" in flags else "Haswell"
    return os.environ | {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads),
                         "OMP_WAIT_POLICY": "passive"}


def output_of(command, env):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, env=env)
    if result.returncode != 0:
        raise RuntimeError(f"{command[0]}: {result.stderr.strip()[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


class Memory(threading.Thread):
    """The most memory that each process under `pid` has had, by role."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.most = pid, {}
        self.start()

    def run(self):
        while os.path.exists(f"/proc/{self.pid}/stat"):
            children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.pid)], capture_output=True, text=True, check=False)
            for pid in [self.pid, *map(int, children.stdout.split())]:
                try:
                    words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                    status = pathlib.Path(f"/proc/{pid}/status").read_text()
                except OSError:
                    continue
                peak = re.search(r"VmHWM:\s+(\d+) kB", status)
                if peak and len(words) > 1:
                    self.most[words[1]] = max(self.most.get(words[1], 0), int(peak.group(1)) / 1024)
            time.sleep(1)


def ours(build, folder, name, job, arguments):
    """Samples per second in the steady state, MB by role, and what the summary says of the time."""
    path = pathlib.Path(folder, f"{name}.yaml")
    path.write_text(job)
    run = pathlib.Path(folder, f"run-{name}")
    process = subprocess.Popen([str(build / "src" / "bin" / "starling"), "train", str(path), "--run", str(run), *arguments],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    memory = Memory(process.pid)
    out, errors = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"starling train {' '.join(arguments)}: {errors.strip()[-2000:]}")
    told = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    points = [(one["time_s"], one["samples"]) for one in told if "samples" in one]
    steady = [point for point in points if point[0] >= points[-1][0] / 3]
    rate = (steady[-1][1] - steady[0][1]) / (steady[-1][0] - steady[0][0])
    where = re.search(r"of each worker: (.*)", out)
    return rate, memory.most, where.group(1) if where else ""


def torch_rate(python, data, seconds):
    """(rate, version); (None, why) without torch."""
    if not python or not os.path.exists(python):
        return None, "no Python"
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        return None, "not installed"
    told = output_of([python, BENCH / "rivals" / "torch_ctr.py", data, seconds, 2], tuned(2))
    return told["samples_per_s"], told["torch"]


def median(rates):
    return statistics.median(rates) if rates and None not in rates else None


def run(build, quick):
    samples, epochs, rounds, seconds = (200_000, 2, 1, 8) if quick else (1_000_000, 4, 3, 20)
    newer = os.environ.get("STARLING_BENCH_PYTHON")
    rates = {name: [] for name in ("processes", "one", "dense", "torch", "newer")}
    versions, memory, where = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([build / "src" / "bin" / "starling", "generate", "ctr", "--out", folder, "--samples", str(samples), "--test",
                        "1000", "--keys", "2000000"], check=True, capture_output=True)
        data = pathlib.Path(folder, "train-0.tsv")
        few = pathlib.Path(folder, "few.tsv")
        few.write_text("".join(data.read_text().splitlines(keepends=True)[:200_000]))
        for number in range(rounds):
            rates["dense"].append(output_of([build / "bench" / "train" / "dense_limit", 2, seconds], tuned(1))["samples_per_s"])
            for name, protocol, arguments in (("processes", "grpc++", ["--processes"]), ("one", "inproc", [])):
                job = JOB.format(folder=folder, fields=FIELDS, epochs=epochs, protocol=protocol)
                rate, memory[name], where[name] = ours(build, folder, f"{name}-{number}", job, arguments)
                rates[name].append(rate)
            rate, versions["torch"] = torch_rate(PYTHON, few, seconds)
            rates["torch"].append(rate)
            rate, versions["newer"] = torch_rate(newer, few, seconds)
            rates["newer"].append(rate)
    mine, unit = median(rates["processes"]), "samples/s"
    rows = [row("train, processes over grpc++", unit, mine, "the dense network alone (the limit)", median(rates["dense"]), bar=0.6),
            row("train, processes over grpc++", unit, mine, f"PyTorch {versions['torch']}, one process", median(rates["torch"]),
                bar=1.5 if median(rates["torch"]) else None),
            row("train, processes over grpc++", unit, mine, f"newer PyTorch: {versions['newer']}", median(rates["newer"])),
            row("train, processes over grpc++", unit, mine, "Paddle PS 2.6.2: not installed"),
            row("train, one process", unit, median(rates["one"]), "processes over grpc++", mine, bar=1.0)]
    for name, told in where.items():
        for part, time_s in re.findall(r"([a-z ]+?) ([\d.]+) s", told):
            rows.append(row(f"time of each worker, {name}: {part.strip()}", "s", float(time_s)))
    for role, mb in sorted(memory["processes"].items()):
        rows.append(row(f"memory of the {role}", "MB", mb))
    return rows
