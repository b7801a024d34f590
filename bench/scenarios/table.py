"""Tables in memory: lookups and updates against a bare loop over the same memory and against hash maps.

table_bench measures every pair in turns of 32 batches, on one thread, and tells the rate of the median batch. The bare loop visits one
index line and one row at known addresses with the best of seven prefetch distances and two cache levels; it neither
hashes nor compares. Its update does the arithmetic of the rule; a second one only multiplies and subtracts.
adagrad is rowwise_adagrad unless said otherwise; batches have 8192 keys.
"""
import json

from run_bench import output_of, row

LIMIT_BARS = {"resolve+gather": 0.8, "resolve+apply": 0.8}
RIVAL_BARS = {"std::unordered_map to vectors": 5.0, "absl::flat_hash_map to pooled rows": 1.8}
LESS_IS_BETTER = ("bytes", "ms")


def bar_of(entry):
    if entry["rival"] == "bare loop":
        return LIMIT_BARS.get(entry["work"])
    if entry["keys"] == "uniform":
        return RIVAL_BARS.get(entry["rival"])
    return 1.0 if entry["unit"] in LESS_IS_BETTER and entry["rival"] else None


def row_of(entry):
    work = f"{entry['work']}, {entry['rows'] / 1e6:g} M rows, dim {entry['dim']}"
    if entry["keys"]:
        work += f", {entry['keys']}"
    rival = entry["rival"] or None
    return row(work, entry["unit"], entry["ours"], rival, entry["theirs"] if rival else None,
               less_is_better=entry["unit"] in LESS_IS_BETTER, bar=bar_of(entry))


def run(build, quick):
    program = build / "src" / "table" / "table_bench"
    return [row_of(json.loads(line)) for line in output_of(program, *(["--quick"] if quick else [])).splitlines()]
