#!/usr/bin/env python3
"""Runs benchmark scenarios, prints one table each and writes the same as JSON.

usage: bench/run.py NAME [--quick] [--json FILE] [--build DIR]
       bench/run.py --all [--quick] [--build DIR]      every scenario; JSON into bench/out/NAME.json
       bench/run.py --list

A scenario is bench/scenarios/NAME.py: its docstring says what is measured, `run(build, quick)` gives the rows, made with
row(). A row measures some work against a rival, or the limit, in the same run. ratio > 1 means that we are better, whether
more or less of the unit is. bar is the ratio we want; holds says whether we have it. --quick is for a look: fewer rounds.
The exit status is not zero when a scenario could not run. A bar that does not hold is shown, and is no error: nothing timed
decides a test.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import sys
import traceback

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
COLUMNS = ["work", "unit", "ours", "rival", "theirs", "ratio", "bar", "holds"]


def row(work, unit, ours, rival=None, theirs=None, *, less_is_better=False, bar=None):
    """One line of the table. Without a rival's number there is no ratio; without a bar nothing has to hold."""
    ratio = None
    if theirs is not None and ours and theirs:
        ratio = theirs / ours if less_is_better else ours / theirs
    holds = None
    if bar is not None:
        holds = ratio is not None and ratio >= bar
    return {"work": work, "unit": unit, "ours": ours, "rival": rival, "theirs": theirs, "ratio": ratio, "bar": bar,
            "holds": holds}


def output_of(*command, env=None):
    """What a program prints. RuntimeError with the program's name and its last words when it fails."""
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    if result.returncode != 0:
        raise RuntimeError(f"{pathlib.Path(words[0]).name}: {result.stderr.strip()[-2000:]}")
    return result.stdout


def names(folder=BENCH / "scenarios"):
    return sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_") and not path.stem.endswith("_test"))


def load(name, folder=BENCH / "scenarios"):
    """The module of a scenario. Scenarios import this file as `run_bench` to make rows."""
    spec = importlib.util.spec_from_file_location(f"scenario_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["run_bench"] = sys.modules[__name__]
    spec.loader.exec_module(module)
    return module


def machine():
    """What a number depends on: processor, cores, memory, kernel."""
    processor = platform.machine()
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = models[0] if models else processor
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"processor": processor, "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory_gb, 1),
            "kernel": platform.release()}


def commit():
    result = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def shown(value):
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(rows):
    """The rows as aligned text: words to the left, numbers to the right."""
    cells = [[shown(r[column]) for column in COLUMNS] for r in rows]
    for line, r in zip(cells, rows):
        for column in ("ratio", "bar"):
            if r[column] is not None:
                line[COLUMNS.index(column)] += "x"
    widths = [max(len(line[i]) for line in [COLUMNS, *cells]) for i in range(len(COLUMNS))]
    left = {"work", "unit", "rival"}

    def text(line):
        parts = [cell.ljust(width) if column in left else cell.rjust(width)
                 for column, cell, width in zip(COLUMNS, line, widths)]
        return "  ".join(parts).rstrip()

    return "\n".join([text(COLUMNS), "  ".join("-" * width for width in widths), *map(text, cells)])


def check_rows(rows):
    """A scenario that returns something else is broken; say where."""
    if not rows:
        raise ValueError("no rows")
    for number, r in enumerate(rows):
        if set(r) != set(COLUMNS):
            raise ValueError(f"row {number} has {sorted(r)}, not {COLUMNS}; make it with row()")


def run_scenario(name, build, quick, out):
    """Runs, prints and writes one scenario. True when it ran."""
    module = load(name)
    about = (module.__doc__ or "").strip().splitlines()
    print(f"== {name}: {about[0] if about else ''}{' (quick)' if quick else ''}", flush=True)
    try:
        rows = module.run(build, quick)
        check_rows(rows)
    except Exception:  # a scenario that breaks must not stop the others
        traceback.print_exc()
        return False
    print(table(rows), flush=True)
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        report = {"bench": name, "commit": commit(), "machine": machine(), "rows": rows}
        out.write_text(json.dumps(report, indent=1) + "\n")
    return True


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    given = parser.parse_args(arguments)
    if given.list:
        print("\n".join(names()))
        return 0
    if not given.all and given.name not in names():
        parser.error(f"no scenario '{given.name}'; there are: {', '.join(names()) or 'none'}")
    build = given.build.resolve()
    if not given.all:
        return 0 if run_scenario(given.name, build, given.quick, given.json) else 1
    ran = [run_scenario(name, build, given.quick, BENCH / "out" / f"{name}.json") for name in names()]
    return 0 if all(ran) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
