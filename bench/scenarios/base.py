"""Counters and histograms on the hot path against one bare relaxed atomic add, the least that any of them costs.

base_bench runs the three interleaved, on one thread; a number is the median of its repetitions.
"""
import json

from run_bench import output_of, row

RIVAL = "relaxed atomic add"
# A histogram adds to a bucket and to the sum, and looks at the maximum.
WORKS = {"count": ("add to a counter", 0.9), "record": ("record a latency", 0.3)}


def rows_of(document):
    medians = {entry["run_name"]: entry["cpu_time"] for entry in document["benchmarks"]
               if entry.get("aggregate_name") == "median"}
    return [row(work, "ns", medians[name], RIVAL, medians["bare_add"], less_is_better=True, bar=bar)
            for name, (work, bar) in WORKS.items()]


def run(build, quick):
    program = build / "src" / "base" / "base_bench"
    return rows_of(json.loads(output_of(program, "--benchmark_format=json", "--benchmark_enable_random_interleaving=true",
                                        f"--benchmark_repetitions={5 if quick else 25}", "--benchmark_min_time=0.05")))
