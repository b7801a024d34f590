"""A cut of one shard with 4 GB of rows: saved and restored against the disk's own rate, and training beside it.

checkpoint_bench drives one shard by hand: dim 16, adagrad, pushes by key of 8192. Writes end with fsync on both sides, reads
start with nothing of the files in the page cache. Training is the rate of pushes of random keys while a cut is written,
against the same without one, before and after; a stall is the longest turn of a push and a slice less the median turn.
With --quick 512 MB.
"""
import json
import pathlib
import shutil
import subprocess
import tempfile

import run_bench

STALL_MS_MAX = 20.0


def run(build, quick):
    program = pathlib.Path(build) / "bench" / "checkpoint" / "checkpoint_bench"
    size = (512 << 20) if quick else (4 << 30)
    directory = tempfile.mkdtemp(prefix="starling-checkpoint-", dir=build)
    try:
        output = subprocess.run([program, directory, str(size), "3" if quick else "6"], check=True, capture_output=True,
                                text=True).stdout
    finally:
        shutil.rmtree(directory)
    told = json.loads(output)
    mb = told["bytes"] / 1e6
    return [
        run_bench.row("save", "MB/s", mb / told["save_s"], "disk write", mb / told["disk_write_s"], bar=0.7),
        run_bench.row("restore", "MB/s", mb / told["restore_s"], "disk read", mb / told["disk_read_s"], bar=0.7),
        run_bench.row("training during a save", "keys/s", told["train_rate_saving"], "without", told["train_rate"], bar=0.8),
        run_bench.row("longest stall of a push", "ms", told["stall_ms"], "allowed", STALL_MS_MAX, less_is_better=True, bar=1.0),
        run_bench.row("median turn during a save", "ms", told["push_ms"]),
        run_bench.row("memory beyond the tables", "MB", told["extra_bytes_max"] / 1e6),
        run_bench.row("save during training", "s", told["save_training_s"]),
    ]
