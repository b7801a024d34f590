"""A cut of one shard with 4 GB of rows: saved and restored against the disk's own rate, and training beside it.

checkpoint_bench drives one shard by hand: dim 16, adagrad, pushes by key of 8192. Writes end with fsync on both sides, reads
start with nothing of the files in the page cache. Training is the rate of pushes while a cut is written, against the same
without one, before and after; a stall is the longest turn of a push and a slice less the median turn. Keys as in click logs:
one row in a hundred takes nine uses in ten. Uniform keys are the worst case: every row is soon touched, and must be copied
when it is touched before it is out. With --quick 512 MB.
"""
import json
import pathlib
import shutil
import tempfile

import run_bench

STALL_MS_MAX = 20.0


def run(build, quick):
    program = pathlib.Path(build) / "bench" / "checkpoint" / "checkpoint_bench"
    size = (512 << 20) if quick else (4 << 30)
    directory = tempfile.mkdtemp(prefix="starling-checkpoint-", dir=build)
    try:
        told = json.loads(run_bench.output_of(program, directory, size, "3" if quick else "6"))
    finally:
        shutil.rmtree(directory)
    mb = told["bytes"] / 1e6
    rows = [
        run_bench.row("save", "MB/s", mb / told["save_s"], "disk write", mb / told["disk_write_s"], bar=0.7),
        run_bench.row("restore", "MB/s", mb / told["restore_s"], "disk read", mb / told["disk_read_s"], bar=0.7),
    ]
    for name, keys in (("log", "keys as in click logs"), ("uniform", "uniform keys")):
        one = told[name]
        rows += [
            run_bench.row(f"training during a save, {keys}", "keys/s", one["train_rate_saving"], "without", one["train_rate"],
                          bar=0.8),
            run_bench.row(f"longest stall of a push, {keys}", "ms", one["stall_ms"], "allowed", STALL_MS_MAX,
                          less_is_better=True, bar=1.0),
            run_bench.row(f"median turn during a save, {keys}", "ms", one["push_ms"]),
            run_bench.row(f"memory beyond the tables, {keys}", "MB", one["extra_bytes_max"] / 1e6),
            run_bench.row(f"save during training, {keys}", "s", one["save_s"]),
        ]
    return rows
