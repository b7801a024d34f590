"""One shard of a ps behind every transport, against the same table alone on one core.

ps_bench starts a scheduler and a ps as another process (inproc: in its own), fills a table of 2 M rows of dim 16 with
adagrad, and drives batches of 8192 random keys, 8 in flight, in bursts that take turns with the table alone: gather, push,
and locate + gather + push. Small pulls are of 64 rows (4 KB), one at a time, beside an empty exchange over the same
transport; times are p50. Rates are medians over the rounds. The last rows compare 50 M rows with 1 M, each in a run of its
own, over grpc++ and for the table alone: what the table alone loses is the memory's part.
"""
import json

from run_bench import output_of, row

OURS = "grpc++"
NAMES = {"pull": "pull by key", "push": "push of gradients by key", "batch": "feed, lookup and push by batch id"}
BARS = {"pull": 0.6, "push": 0.6, "batch": 0.6}
SMALL_BAR = 1 / 5
FLAT_BAR = 0.85
FLAT_ROWS = (1_000_000, 50_000_000)


def measure(build, quick, *arguments):
    program = build / "bench" / "ps" / "ps_bench"
    told = output_of(program, *(["--quick"] if quick else []), *arguments)
    return [json.loads(line) for line in told.splitlines()]


def row_of(entry):
    protocol = entry["protocol"]
    if entry["work"] == "small":
        return row(f"pull of 4 KB, {protocol}", "us", entry["ours"], "empty exchange", entry["alone"], less_is_better=True,
                   bar=SMALL_BAR if protocol == OURS else None)
    return row(f"{NAMES[entry['work']]}, {entry['rows'] / 1e6:g} M rows, {protocol}", "rows/s", entry["ours"],
               "the table alone", entry["alone"], bar=BARS[entry["work"]] if protocol == OURS else None)


def flat_rows(build):
    """The rate with many rows against that with few, behind the wire and of the table alone."""
    few, many = ({entry["work"]: entry for entry in measure(build, True, "--apart", "--protocol", OURS, "--work", "pull",
                                                            "--work", "push", "--rows", n)} for n in FLAT_ROWS)
    rows = []
    for work in ("pull", "push"):
        for whose, side, bar in ((OURS, "ours", FLAT_BAR), ("the table alone", "alone", None)):
            rows.append(row(f"{NAMES[work]}, {FLAT_ROWS[1] / 1e6:g} M rows, {whose}", "rows/s", many[work][side],
                            f"{FLAT_ROWS[0] / 1e6:g} M rows", few[work][side], bar=bar))
    return rows


def run(build, quick):
    rows = [row_of(entry) for entry in measure(build, quick)]
    return rows if quick else rows + flat_rows(build)
