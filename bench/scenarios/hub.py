"""From lines to batches: parsing, hashing and assembling generated Criteo lines on one core.

data_bench makes the lines and runs every work once per round, on one thread; rates are those of the median round. The
limit is memchr, called for every tab and newline of the same bytes. The rivals only parse: std::getline with strtoull, in the same
program, and pandas.read_csv (Debian's python3-pandas, its C engine, from a file in the page cache) in the rounds between.
Ours parses the numbers, takes their logarithms, hashes 26 keys per line, shuffles, and makes batches of 512 for one shard, with the
keys of 26 tables de-duplicated. Without pandas its row carries the reason and no number.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

from run_bench import row

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
    result = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{program.name}: {result.stderr.strip()}")
    return [json.loads(line) for line in result.stdout.splitlines()]


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
        row("vector scan for tabs and newlines", "MB/s", rates["vector scan"], "memchr scan (the limit)", rates["memchr scan"]),
    ]
    return rows
