"""Exchanges between two processes: ours, gRPC as it is usually and as it is best used, and a bare TCP ping-pong.

bench/transport starts a server and a client process for each kind, interleaves short bursts of every kind and load, checks sizes
and stamps at both ends, and gives medians over the rounds. Times are p50 of a round, unless p99 is said.
"""

import json

from run_bench import output_of, row

OURS = "grpc++"
TUNED = "gRPC unary tuned"
UNARY = "gRPC unary"
STREAM = "gRPC stream"
RAW = "raw TCP"
LOADS = {"8 B": "8 B", "256 KB": "32 KB -> 256 KB", "6.8 MB": "0.85 MB -> 6.8 MB"}
IN_FLIGHT = "8 x 256 KB"
IN_FLIGHT_WORK = "8 in flight of 32 KB -> 256 KB"
# What grpc++ is to reach against each rival, by load.
BARS = {
    TUNED: {"8 B": 15, "256 KB": 4, "6.8 MB": 3, IN_FLIGHT: 2.2},
    STREAM: {"8 B": 9, "256 KB": 3, "6.8 MB": 1.6, IN_FLIGHT: 1.6},
}
PIECES_BAR = 0.8
IDLE_PERCENT_MAX = 1.0
IDLE_PERCENT_MIN = 0.001
RAW_BAR = 1 / 1.5
OWN_GRPC_BAR = 1.5


def times(kinds, ours, rival, load, bar=None, number="p50_us"):
    name = f"{LOADS[load]}, {number[:3]} of {ours}"
    return row(name, "us", kinds[ours][load][number], rival, kinds[rival][load][number], less_is_better=True, bar=bar)


def rates(kinds, ours, rival, bar=None):
    return row(f"{IN_FLIGHT_WORK}, {ours}", "GB/s", kinds[ours][IN_FLIGHT]["gb_per_s"], rival,
               kinds[rival][IN_FLIGHT]["gb_per_s"], bar=bar)


def bar_rows(kinds):
    rows = []
    for rival, bars in BARS.items():
        rows += [times(kinds, OURS, rival, load, bars[load]) for load in LOADS]
        rows.append(rates(kinds, OURS, rival, bars[IN_FLIGHT]))
    rows.append(times(kinds, OURS, RAW, "8 B", RAW_BAR))
    rows += [times(kinds, OURS, rival, "8 B", number="p99_us") for rival in (TUNED, STREAM, RAW)]
    rows.append(times(kinds, "grpc", UNARY, "6.8 MB", OWN_GRPC_BAR))
    return rows


def piece_rows(kinds):
    one = kinds[OURS]["6.8 MB"]["p50_us"]
    rows = []
    for pieces, bar in ((16, None), (64, PIECES_BAR)):
        ours = kinds[OURS][f"6.8 MB / {pieces}"]["p50_us"]
        rows.append(row(f"6.8 MB in {pieces} pieces, {OURS}", "us", ours, f"{OURS} in one piece", one, less_is_better=True,
                        bar=bar))
    return rows


def cpu_rows(kinds):
    ours = kinds[OURS]
    rows = []
    for load, work in ((IN_FLIGHT, IN_FLIGHT_WORK), ("6.8 MB", LOADS["6.8 MB"])):
        rows += [row(f"processor time, {work}, {OURS}", "s/GB", ours[load]["cpu_s_per_gb"], rival,
                     kinds[rival][load]["cpu_s_per_gb"], less_is_better=True) for rival in (TUNED, STREAM, RAW)]
    return rows


def idle_row(idle):
    # Often nothing at all is used; a ratio needs a number above it.
    percent = max(idle["percent"], IDLE_PERCENT_MIN)
    return row(f"idle server, {idle['connections']:,} connections", "% of a core", percent, "allowed", IDLE_PERCENT_MAX,
               less_is_better=True, bar=1.0)


def context_rows(kinds):
    """Every other kind beside ours, so that the whole run can be read from one table."""
    rows = []
    for kind in kinds:
        if kind in (OURS, TUNED, STREAM):
            continue
        rows += [times(kinds, OURS, kind, load) for load in LOADS if not (kind == RAW and load == "8 B")]
        rows.append(rates(kinds, OURS, kind))
    return rows


def run(build, quick):
    program = build / "bench" / "transport" / "transport_bench"
    document = json.loads(output_of(program, *(["--quick"] if quick else [])))
    kinds = document["kinds"]
    other = row("cores busy with other work meanwhile", "cores", document["other_cores"])
    return [*bar_rows(kinds), *piece_rows(kinds), idle_row(document["idle"]), *cpu_rows(kinds), *context_rows(kinds), other]
