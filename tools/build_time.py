#!/usr/bin/env python3
"""Measures the build on an otherwise quiet machine: all of the release build, then again after touching one .cc file.

usage: tools/build_time.py [--jobs N] [FILE...]

Builds from nothing in build/time, without the compiler's cache. FILEs (default: one of each sort, from the bottom of the
tree to its top) are touched one after the other. Bars: 10 minutes on 2 cores for everything, 30 s for a touched file.
Exit status 1 when one is missed.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "time"
FILES = ["src/base/metrics.cc", "src/net/client.cc", "src/table/table.cc", "src/ps/shard.cc", "src/hub/server.cc",
         "src/trainer/trainer.cc", "src/net/conformance/calls_test.cc"]
FULL_S = 600
TOUCHED_S = 30


def seconds_of(command):
    """How long it takes; a command that fails ends the program and shows what it said."""
    start = time.monotonic()
    result = subprocess.run(command, cwd=ROOT, env=dict(os.environ, CCACHE_DISABLE="1"), capture_output=True, text=True,
                            check=False)
    if result.returncode != 0:
        sys.exit(result.stdout + result.stderr)
    return time.monotonic() - start


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("files", nargs="*", default=FILES)
    given = parser.parse_args(arguments)
    shutil.rmtree(BUILD, ignore_errors=True)
    build = ["cmake", "--build", str(BUILD), "-j", str(given.jobs)]
    configure = seconds_of(["cmake", "--preset", "release", "-B", str(BUILD), "-Wno-dev"])
    times = [("everything", configure + seconds_of(build), FULL_S)]
    for name in given.files:
        (ROOT / name).touch()
        times.append((f"after touching {name}", seconds_of(build), TOUCHED_S))
    for what, took, bar in times:
        print(f"{took:6.0f} s  {what} (bar {bar} s{', MISSED' if took > bar else ''})")
    shutil.rmtree(BUILD)
    return 1 if any(took > bar for _, took, bar in times) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
