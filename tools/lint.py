#!/usr/bin/env python3
"""Lints the C++ code with clang: format, thread-safety analysis and clang-tidy, all as errors.

usage: tools/lint.py [--build DIR] [--format] [--jobs N] [PATH...]

PATHs (files or folders) narrow it down. --format rewrites the files with clang-format and does nothing else.
A file that passed is not looked at again until something that it is made of changes: its preprocessed text, its flags,
.clang-tidy or the tools. The record of that lies in build/lint-cache.
DIR/tests.json gets the counts: one case when all is well, else a failure per complaint.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOPS = ("src", "tests", "bench", "examples")
SUFFIXES = {".h", ".cc"}
# Clang does not know some of g++'s warning flags.
CLANG_FLAGS = ["-Wthread-safety", "-Wno-unknown-warning-option", "-Wno-unused-command-line-argument"]
# Tests and benchmarks, half of the tree, are compiled by clang with all warnings as errors and the thread-safety
# analysis; clang-tidy, which takes four times as long, looks at what users run.
ONLY_COMPILED = re.compile(r"_(test|bench|fuzz)\.cc$|^(tests|bench|src/net/conformance)/")

# Debian's libtorch 1.13 does not compile with clang 14 as C++20 (its vectors of an incomplete type): what sees this
# header is g++'s alone.
NOT_FOR_CLANG = "/ATen/core/ivalue_inl.h"


def run(command, folder=ROOT):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)


def sources(paths):
    """The C++ files under `paths` (the whole tree when empty), relative to the root."""
    tops = [pathlib.Path(path).resolve() for path in paths] or [ROOT / top for top in TOPS]
    files = []
    for top in tops:
        found = [top] if top.is_file() else sorted(top.rglob("*"))
        files += [path for path in found if path.suffix in SUFFIXES and path.is_file()]
    return [path.relative_to(ROOT).as_posix() for path in files]


def configure(build):
    """Makes the compile commands and the generated headers that they need."""
    if build == ROOT / "build" / "lint":
        result = run(["cmake", "--preset", "lint", "-Wno-dev"])
        if result.returncode != 0:
            return result.stdout + result.stderr
    listing = run(["ninja", "-C", str(build), "-t", "targets", "all"]).stdout
    # The headers that protoc writes; nothing else has to be built.
    generated = sorted(set(re.findall(r"^(\S+\.pb\.h):", listing, re.MULTILINE)))
    if generated:
        result = run(["ninja", "-C", str(build), *generated])
        if result.returncode != 0:
            return result.stdout + result.stderr
    return ""


def commands(build, files):
    """file -> (flags without compiler, output and source, folder), for those of `files` that are compiled."""
    wanted = set(files)
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
        if name not in wanted:
            continue
        words = shlex.split(entry["command"])
        words = words[next(i for i, word in enumerate(words) if re.search(r"(clang|g|c)\+\+[\d.-]*$", word)) + 1:]
        flags = []
        skip = False
        for word in words:
            if skip or word == "-c" or word == entry["file"]:
                skip = False
            elif word in ("-o", "-MT", "-MF", "-MQ"):
                skip = True
            elif word not in ("-MD", "-MMD"):
                flags.append(word)
        found[name] = (flags, entry["directory"])
    return found


def digest(parts):
    total = hashlib.sha256()
    for part in parts:
        total.update(part.encode(errors="replace"))
        total.update(b"\0")
    return total.hexdigest()


class Linter:
    def __init__(self, build, cache):
        self.build = build
        self.cache = cache
        cache.mkdir(parents=True, exist_ok=True)
        tools = [run([tool, "--version"]).stdout for tool in ("clang++", "clang-tidy")]
        self.skipped = []
        self.common = [*tools, (ROOT / ".clang-tidy").read_text(), (ROOT / "tools" / "lint.py").read_text()]

    def check(self, name, flags, folder):
        """(was it cached, the complaints of clang and clang-tidy)."""
        source = str(ROOT / name)
        text = run(["clang++", *flags, "-E", "-C", source], folder)
        if text.returncode != 0:
            return False, [f"{name}: clang++ -E:\n{text.stderr}"]
        if NOT_FOR_CLANG in text.stdout:
            self.skipped.append(name)
            return False, []
        # Comments stay in the text (-C), because NOLINT is one. The folder of the tree does not matter.
        key = digest([*self.common, name, *flags, text.stdout]).replace("\n", "")
        mark = self.cache / key
        if mark.exists():
            os.utime(mark)
            return True, []
        if ONLY_COMPILED.search(name):
            tidied = run(["clang++", *flags, *CLANG_FLAGS, "-Werror", "-fsyntax-only", source], folder)
        else:
            # One pass: clang's own warnings, its thread-safety analysis among them, come out of clang-tidy.
            tidied = run(["clang-tidy", "-p", str(self.build), "--quiet",
                          *(f"--extra-arg={flag}" for flag in CLANG_FLAGS), source])
        complaints = []
        if tidied.returncode != 0:
            complaints.append(tidied.stdout + ("" if tidied.stdout.strip() else tidied.stderr))
        if not complaints:
            mark.touch()
        return False, complaints


def forget_old(cache, days_max=30):
    """Marks that nobody asked for in a month go."""
    for mark in cache.iterdir():
        if time.time() - mark.stat().st_mtime > days_max * 86400:
            mark.unlink(missing_ok=True)


def check_format(files):
    """One complaint per file that clang-format would change."""
    complaints = []
    for start in range(0, len(files), 50):
        result = run(["clang-format", "--dry-run", "--Werror", *files[start:start + 50]])
        wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", result.stderr, re.MULTILINE)))
        complaints += [f"{name}: is not formatted; run `make format`" for name in wrong]
        if result.returncode != 0 and not wrong:
            complaints.append(result.stderr)
    return complaints


def lint(build, files, jobs):
    """All complaints, the files that were compiled, the number of them that were cached, and those not for clang."""
    complaints = check_format(files)
    for complaint in complaints:
        print(complaint, flush=True)
    problem = configure(build)
    if problem:
        print(problem)
        return complaints + [problem], 0, 0, []
    units = commands(build, files)
    linter = Linter(build, ROOT / "build" / "lint-cache")
    cached = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = {pool.submit(linter.check, name, *units[name]): name for name in sorted(units)}
        for future in concurrent.futures.as_completed(futures):
            hit, found = future.result()
            cached += hit
            complaints += found
            for complaint in found:
                print(complaint, flush=True)
    forget_old(linter.cache)
    return complaints, len(units) - len(linter.skipped), cached, sorted(linter.skipped)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "lint")
    parser.add_argument("--format", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args(arguments)
    needed = ("clang-format",) if given.format else ("clang-format", "clang-tidy", "clang++")
    missing = [tool for tool in needed if shutil.which(tool) is None]
    if missing:
        print(f"lint: {', '.join(missing)} not found; `tools/setup.sh lint` installs what is needed")
        return 1
    files = sources(given.paths)
    if given.format:
        return run(["clang-format", "-i", *files]).returncode
    start = time.monotonic()
    build = given.build.resolve()
    complaints, compiled, cached, skipped = lint(build, files, given.jobs)
    for name in skipped:
        print(f"skipped {name}: libtorch's headers are not for clang")
    if build.is_dir():
        counts = {"passed": 0 if complaints else 1, "failed": len(complaints), "skipped": len(skipped)}
        (build / "tests.json").write_text(json.dumps(counts) + "\n")
    print(f"lint: {len(files)} files, {compiled} of them compiled ({cached} cached), "
          f"{len(complaints)} complaints, {time.monotonic() - start:.0f} s")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
