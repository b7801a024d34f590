#!/usr/bin/env python3
"""Runs the tests of a build folder, counts every single case and lists every skip with its reason.

usage: tools/test.py BUILD_DIR [--label L] [--exclude-label L] [--name REGEX] [--jobs N]

ctest gives the list (commands, labels, environment, timeouts). Labels say how to count:
  gtest     a Google Test program: one case per test
  unittest  a Python unittest program: one case per test
  other     the exit status is the one case (fuzz runs, tidy)
  waits     waits most of its time: runs beside the others, in a place of its own
  exclusive runs alone, after all others
The property COST, about the seconds that a program takes, puts the long ones first.
A crash, a timeout or a bad exit status is a failure that names the program. The last line is
`N passed, N failed, N skipped`; BUILD_DIR/tests.json holds the same counts. The exit status is not
zero when something failed or nothing ran.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT_S = 600
OUTPUT_LINES_MAX = 400
CASE_LINES_MAX = 60
CASES_SHOWN_MAX = 10
DIED = "the program ended while this test ran"


@dataclasses.dataclass
class Test:
    """One program of the list that ctest gives."""

    name: str
    command: list
    labels: list
    environment: dict
    timeout_s: float
    folder: str
    cost: float = 0.0


@dataclasses.dataclass
class Result:
    """What came of one program: cases that passed, (case, why) that failed, (case, reason) that skipped."""

    name: str
    passed: int = 0
    failed: list = dataclasses.field(default_factory=list)
    skipped: list = dataclasses.field(default_factory=list)
    output: str = ""
    seconds: float = 0.0


def read_list(listing):
    """The tests of `ctest --show-only=json-v1`."""
    tests = []
    for entry in listing["tests"]:
        properties = {p["name"]: p["value"] for p in entry.get("properties", [])}
        environment = dict(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))
        tests.append(
            Test(
                name=entry["name"],
                command=entry.get("command", []),
                labels=[label for label in properties.get("LABELS", []) if label],
                environment=environment,
                timeout_s=float(properties.get("TIMEOUT", TIMEOUT_S)),
                folder=properties.get("WORKING_DIRECTORY", "."),
                cost=float(properties.get("COST", 0)),
            )
        )
    return tests


def select(tests, labels, excluded, name):
    """Tests that have one of `labels` (all when there is none), none of `excluded`, and match `name`."""
    chosen = []
    for test in tests:
        if labels and not set(labels) & set(test.labels):
            continue
        if set(excluded) & set(test.labels):
            continue
        if name and not re.search(name, test.name):
            continue
        chosen.append(test)
    return chosen


def with_sanitizer_options(environment):
    """Programs built without a sanitizer ignore these. What the caller has set comes last and wins."""
    options = {
        "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        # The longest history: a report whose older stack is forgotten cannot be matched with the suppressions.
        "TSAN_OPTIONS": f"suppressions={ROOT / 'tools' / 'tsan.supp'}:second_deadlock_stack=1:history_size=7",
        "LSAN_OPTIONS": f"suppressions={ROOT / 'tools' / 'lsan.supp'}:print_suppressions=0",
    }
    for name, value in options.items():
        given = environment.get(name)
        environment[name] = f"{value}:{given}" if given else value
    return environment


def count_gtest(result, status, report, output):
    """Counts from the XML report, or from the printed lines when the program died before writing it."""
    try:
        cases = list(xml.etree.ElementTree.parse(report).iter("testcase"))
    except (OSError, xml.etree.ElementTree.ParseError):
        count_printed_gtest(result, output)
        return
    for case in cases:
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None:
            result.failed.append((name, "failed"))
        elif case.get("status") == "notrun":
            result.skipped.append((name, "disabled"))
        elif case.get("result") == "skipped":
            skip = case.find("skipped")
            reason = (skip.get("message") if skip is not None else "") or "no reason given"
            # Google Test puts the file and line on a line of its own before the reason.
            lines = [line.strip() for line in reason.splitlines() if line.strip()]
            result.skipped.append((name, lines[-1] if lines else "no reason given"))
        else:
            result.passed += 1
    if not cases and status == 0:
        result.failed.append((result.name, "no test case in this program"))


def count_printed_gtest(result, output):
    running = None
    for line in output.splitlines():
        match = re.match(r"\[( RUN      |       OK |  FAILED  |  SKIPPED )\] (\S+?)(,.*| \(.*\))?$", line)
        if not match:
            continue
        kind, name = match.group(1).strip(), match.group(2)
        if kind == "RUN":
            running = name
            continue
        if name != running:
            continue
        running = None
        if kind == "OK":
            result.passed += 1
        elif kind == "FAILED":
            result.failed.append((name, "failed"))
        else:
            result.skipped.append((name, "no reason given"))
    if running:
        result.failed.append((running, DIED))


def count_unittest(result, output):
    ran = re.findall(r"^Ran (\d+) tests?", output, re.MULTILINE)
    if not ran:
        return
    for match in re.finditer(r"^(?:(\w+) \([\w.<>]+\).*?)?\.\.\. skipped (['\"])(.*)\2$", output, re.MULTILINE):
        result.skipped.append((match.group(1) or result.name, match.group(3)))
    for match in re.finditer(r"^(?:FAIL|ERROR): (.+)$", output, re.MULTILINE):
        result.failed.append((match.group(1), "failed"))
    result.passed = max(0, int(ran[-1]) - len(result.skipped) - len(result.failed))


def end_group(process):
    """Children that a test left behind must not disturb the next one."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Running:
    """The programs that run now, so that none is left behind when this program is told to stop."""

    def __init__(self):
        self.processes = set()

    def stop(self, number, _frame):
        for process in list(self.processes):
            end_group(process)
        os._exit(128 + number)


def run_one(test, logs, running=None):
    running = running or Running()
    result = Result(test.name)
    if not test.command:
        result.failed.append((test.name, "not built"))
        return result
    log = logs / f"{test.name}.log"
    report = logs / f"{test.name}.xml"
    report.unlink(missing_ok=True)
    command = list(test.command)
    if "gtest" in test.labels:
        command.append(f"--gtest_output=xml:{report}")
    environment = with_sanitizer_options({**os.environ, **test.environment})
    start = time.monotonic()
    status = None
    try:
        with open(log, "wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                cwd=test.folder, env=environment, start_new_session=True)
            running.processes.add(process)
            try:
                status = process.wait(timeout=test.timeout_s)
            except subprocess.TimeoutExpired:
                pass
            finally:
                end_group(process)
                process.wait()
                running.processes.discard(process)
    except OSError as error:
        result.failed.append((test.name, f"cannot be started: {error}"))
        return result
    result.seconds = time.monotonic() - start
    result.output = log.read_text(errors="replace")
    if "gtest" in test.labels:
        count_gtest(result, status, report, result.output)
    elif "unittest" in test.labels:
        count_unittest(result, result.output)
    elif status == 0:
        result.passed = 1
    judge(result, test, status)
    return result


def judge(result, test, status):
    """Adds the failure of the program itself; a case that it died in gets the reason instead."""
    if status is None:
        why = f"killed after its timeout of {test.timeout_s:g} s"
    elif status < 0:
        why = f"ended by {signal.Signals(-status).name}"
    elif status != 0:
        why = f"exit status {status}"
    elif not (result.passed or result.failed or result.skipped):
        why = "ran no test case"
    else:
        return
    if result.failed and result.failed[-1][1] == DIED:
        result.failed[-1] = (result.failed[-1][0], why)
    elif status is None or status < 0 or not result.failed:
        result.failed.append((test.name, why))


def show(result):
    mark = "FAILED" if result.failed else "ok"
    skipped = f", {len(result.skipped)} skipped" if result.skipped else ""
    failed = f", {len(result.failed)} failed" if result.failed else ""
    print(f"{mark:6} {result.name}: {result.passed} passed{failed}{skipped} ({result.seconds:.1f} s)", flush=True)
    if result.failed:
        lines = result.output.splitlines()
        # What failed comes first: a long log is often cut at its end by whoever shows it.
        for case, why in result.failed[:CASES_SHOWN_MAX]:
            print(f"  failed: {case}: {why}")
            for line in shortened(lines_of_case(lines, case), CASE_LINES_MAX):
                print(f"    {line}")
        print("  all that it printed:")
        for line in shortened(lines, OUTPUT_LINES_MAX):
            print(f"    {line}")
        sys.stdout.flush()


def lines_of_case(lines, case):
    """What a Google Test or unittest program printed about one case; nothing when that cannot be told."""
    for at, line in enumerate(lines):
        if line == f"[ RUN      ] {case}":
            for end in range(at + 1, len(lines)):
                if re.match(r"\[(  FAILED  |       OK |  SKIPPED | RUN      )\] ", lines[end]):
                    return lines[at + 1:end]
            return lines[at + 1:]
        if line in (f"FAIL: {case}", f"ERROR: {case}"):
            for end in range(at + 1, len(lines)):
                if re.match(r"={70}|Ran \d+ test", lines[end]):
                    return lines[at + 1:end]
            return lines[at + 1:]
    return []


def shortened(lines, lines_max):
    """The first and the last of them, when there are more than `lines_max`."""
    if len(lines) <= lines_max:
        return lines
    half = lines_max // 2
    return lines[:half] + [f"... {len(lines) - 2 * half} lines left out ..."] + lines[-half:]


def run_all(tests, logs, jobs):
    results = []
    running = Running()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, running.stop)
    # Those that are known to take long first, so that none of them runs alone at the end.
    shared = sorted((test for test in tests if "exclusive" not in test.labels), key=lambda test: -test.cost)
    alone = [test for test in tests if "exclusive" in test.labels]
    with concurrent.futures.ThreadPoolExecutor(jobs) as busy, concurrent.futures.ThreadPoolExecutor(1) as waiting:
        futures = [(waiting if "waits" in test.labels else busy).submit(run_one, test, logs, running) for test in shared]
        for future in concurrent.futures.as_completed(futures):
            results.append(future.result())
            show(results[-1])
    for test in alone:
        results.append(run_one(test, logs, running))
        show(results[-1])
    return results


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--label", action="append", default=[], help="only tests with this label")
    parser.add_argument("--exclude-label", action="append", default=[], help="no tests with this label")
    parser.add_argument("--name", help="only tests whose name matches this expression")
    parser.add_argument("--jobs", type=int, default=2, help="programs at once, and one that waits")
    given = parser.parse_args(arguments)

    listing = subprocess.run(
        ["ctest", "--test-dir", str(given.build), "--show-only=json-v1"], capture_output=True, text=True, check=False)
    if listing.returncode != 0:
        print(f"test: no tests in {given.build}: {listing.stderr.strip()}")
        print("0 passed, 1 failed, 0 skipped")
        return 1
    tests = select(read_list(json.loads(listing.stdout)), given.label, given.exclude_label, given.name)
    logs = (given.build / "tests").resolve()
    logs.mkdir(parents=True, exist_ok=True)
    results = run_all(tests, logs, max(1, given.jobs))

    for result in sorted(results, key=lambda r: r.name):
        for case, reason in result.skipped:
            print(f"skipped {result.name}: {case}: {reason}")
    for result in sorted(results, key=lambda r: r.name):
        for case, why in result.failed:
            print(f"failed {result.name}: {case}: {why}")
    counts = {
        "passed": sum(result.passed for result in results),
        "failed": sum(len(result.failed) for result in results),
        "skipped": sum(len(result.skipped) for result in results),
    }
    (given.build / "tests.json").write_text(json.dumps(counts) + "\n")
    if not results:
        print("test: nothing was chosen to run")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", flush=True)
    return 1 if counts["failed"] or not results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
