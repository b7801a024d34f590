"""From lines to batches: parsing, hashing and assembling generated Criteo lines on one core.

data_bench makes the lines and runs every work once per round, on one thread; rates are those of the median round. The
limit is memchr, called for every tab and newline of the same bytes. The rivals only parse: std::getline with strtoull, in the same
program, and pandas.read_csv (Debian's python3-pandas, its C engine, from a file in the page cache) in the rounds between.
Ours parses the numbers, takes their logarithms, hashes 26 keys per line, shuffles, and makes batches of 512 for one shard, with the
keys of 26 tables de-duplicated. Without pandas its row carries the reason and no number.

The last row is the whole way: scheduler, one ps with one shard and one hub with one parsing thread as processes over grpc++;
hub_bench takes every batch of 512 and reports it done at once, so that the file is read, parsed, assembled, fed to the shard and
leased. Its rival is parsing, hashing and assembling alone on one core; the processes have all cores of the machine.
"""
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile

from run_bench import output_of, row

OURS = "parse + hash + assemble, 1 shard"
# Debian's pandas belongs to Debian's Python, whatever runs this.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
LINES = 2_000_000
LINES_QUICK = 200_000
READ = """
import sys, time
try:
    import pandas
except ImportError:
    sys.exit(3)
start = time.perf_counter()
frame = pandas.read_csv(sys.argv[1], sep="\\t", header=None)
print(time.perf_counter() - start if len(frame) == int(sys.argv[2]) else -1)
"""


def run_program(program, *arguments):
    return [json.loads(line) for line in output_of(program, *arguments).splitlines()]


def pandas_mb_per_s(program, lines, rounds):
    """None without pandas."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "criteo.tsv")
        run_program(program, "--write", path, "--lines", lines)
        seconds = []
        for _ in range(rounds):
            result = subprocess.run([PYTHON, "-c", READ, path, str(lines)], capture_output=True, text=True, check=False)
            if result.returncode == 3:
                return None
            if result.returncode != 0 or float(result.stdout) < 0:
                raise RuntimeError(f"pandas: {result.stderr.strip() or 'not all lines were read'}")
            seconds.append(float(result.stdout))
        return os.path.getsize(path) / 1e6 / statistics.median(seconds)


@contextlib.contextmanager
def process(*arguments):
    """A role of the job; gives its first line, which has its address."""
    child = subprocess.Popen([str(argument) for argument in arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = child.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"{arguments[1]} did not start")
        yield line
    finally:
        child.terminate()
        child.wait()
        child.stdout.close()


def file_to_shards_mb_per_s(build, path):
    starling = build / "src" / "bin" / "starling"
    tables = ", ".join(f"C{i}: {{dim: 8}}" for i in range(1, 27))
    with tempfile.TemporaryDirectory() as folder:
        job = os.path.join(folder, "job.yaml")
        with open(job, "w", encoding="utf-8") as out:
            out.write(f"tables: {{{tables}}}\ncluster: {{ps: 1, shards: 1, hubs: 1}}\nhub: {{readers: 1}}\n")
        listen = ("--listen", "grpc++://127.0.0.1:0")
        with process(starling, "scheduler", "--job", job, *listen) as scheduler, \
                process(starling, "ps", "--job", job, "--scheduler", scheduler, *listen), \
                process(starling, "hub", "--job", job, "--scheduler", scheduler, *listen):
            entry = run_program(build / "bench" / "hub" / "hub_bench", scheduler, path, 512)[0]
    return os.path.getsize(path) / 1e6 / entry["seconds"]


def whole_way(build, program, lines, rounds):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "criteo.tsv")
        run_program(program, "--write", path, "--lines", lines)
        return statistics.median(file_to_shards_mb_per_s(build, path) for _ in range(rounds))


def run(build, quick):
    program = build / "src" / "data" / "data_bench"
    lines = LINES_QUICK if quick else LINES
    entries = {entry["work"]: entry for entry in run_program(program, "--lines", lines, "--rounds", 3 if quick else 5)}
    rates = {work: entry["mb_per_s"] for work, entry in entries.items()}
    ours = rates[OURS]
    pandas = pandas_mb_per_s(program, LINES_QUICK, 1 if quick else 3)
    work = f"{OURS}, one core"
    rows = [
        row(work, "MB/s", ours, "memchr scan (the limit)", rates["memchr scan"], bar=0.25),
        row(work, "MB/s", ours, "std::getline + strtoull", rates["getline + strtoull"], bar=2.0),
        row(work, "MB/s", ours, "pandas.read_csv" if pandas else "pandas.read_csv: python3-pandas is not installed", pandas,
            bar=4.0 if pandas else None),
        row(work, "samples/s", entries[OURS]["samples_per_s"]),
        row("parse + hash, one core", "MB/s", rates["parse + hash"], "memchr scan (the limit)", rates["memchr scan"]),
        row("parse + hash + assemble, 4 shards, one core", "MB/s", rates["parse + hash + assemble, 4 shards"],
            "memchr scan (the limit)", rates["memchr scan"]),
        row("from a file to the shards, hub and ps as processes, grpc++", "MB/s",
            whole_way(build, program, lines, 1 if quick else 3), OURS, ours, bar=0.7),
        row("vector scan for tabs and newlines", "MB/s", rates["vector scan"], "memchr scan (the limit)", rates["memchr scan"]),
    ]
    return rows
