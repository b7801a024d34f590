#!/usr/bin/env python3
"""Lints the C++ code with clang: format, thread-safety analysis and clang-tidy, all as errors.

usage: tools/lint.py [--build DIR] [--format] [--jobs N] [PATH...]

PATHs (files or folders) narrow it down. --format rewrites the files with clang-format and does nothing else.
A file that passed is not looked at again until something that it is made of changes: its text, that of the project's files
it includes, its flags, .clang-tidy or the tools. The record of that lies in build/lint-cache.
Files of one folder with the same flags are looked at as one unit, because nine tenths of the time go into the headers of
libraries; where such a unit does not pass, each of its files is looked at alone, and only that counts.
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

from units import packed

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOPS = ("src", "tests", "bench", "examples")
SUFFIXES = {".h", ".cc"}
# Clang does not know some of g++'s warning flags.
CLANG_FLAGS = ["-Wthread-safety", "-Wno-unknown-warning-option", "-Wno-unused-command-line-argument"]
# Tests and benchmarks, half of the tree, are compiled by clang with all warnings as errors and the thread-safety
# analysis; clang-tidy, which takes four times as long, looks at what users run.
ONLY_COMPILED = re.compile(r"_(test|bench|fuzz)\.cc$|^(tests|bench|src/net/conformance)/")

# Debian's libtorch 1.13 does not compile with clang 14 as C++20 (its vectors of an incomplete type): what sees its
# headers is g++'s alone.
NOT_FOR_CLANG = re.compile(r"^#include <(torch|ATen|c10)/", re.MULTILINE)

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
UNIT_KB_MAX = 128


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


def closure(name, flags, texts):
    """What a file is made of: its own text and those of the project's files that it includes, by path."""
    folders = [pathlib.Path(flag[2:]) for flag in flags if flag.startswith("-I")]
    folders += [pathlib.Path(after) for flag, after in zip(flags, flags[1:]) if flag in ("-I", "-isystem")]
    found = {}
    ahead = [ROOT / name]
    while ahead:
        path = ahead.pop()
        if path in found:
            continue
        if path not in texts:
            texts[path] = path.read_text(errors="replace")
        found[path] = texts[path]
        for included in INCLUDE.findall(texts[path]):
            places = (folder / included for folder in (path.parent, *folders))
            ahead += [place for place in places if place.is_relative_to(ROOT) and place.is_file()][:1]
    return found


class Linter:
    def __init__(self, build, cache):
        self.build = build
        self.cache = cache
        cache.mkdir(parents=True, exist_ok=True)
        tools = [run([tool, "--version"]).stdout for tool in ("clang++", "clang-tidy")]
        self.skipped = []
        self.common = [*tools, (ROOT / ".clang-tidy").read_text(), *((ROOT / "tools" / name).read_text() for name in ("lint.py", "units.py"))]

    def units(self, files):
        """Lists of (file, flags, folder, mark): those to be looked at together. What passed before or is not for clang is left out."""
        texts = {}
        groups = {}
        for name, (flags, folder) in sorted(files.items()):
            parts = closure(name, flags, texts)
            if any(NOT_FOR_CLANG.search(text) for text in parts.values()):
                self.skipped.append(name)
                continue
            # The folder of the tree does not matter.
            told = [f"{path.relative_to(ROOT)}\n{text}" for path, text in sorted(parts.items())]
            mark = self.cache / digest([*self.common, name, *(flag.replace(str(ROOT), "") for flag in flags), *told])
            if mark.exists():
                os.utime(mark)
                continue
            group = (pathlib.Path(name).parent, bool(ONLY_COMPILED.search(name)), tuple(flags), folder)
            groups.setdefault(group, []).append(((name, flags, folder, mark), texts[ROOT / name]))
        return [unit for group in groups.values() for unit in packed(group, UNIT_KB_MAX)]

    def check(self, unit):
        """The complaints of clang and clang-tidy."""
        if len(unit) > 1:
            together = self.build / "units" / f"{unit[0][3].name}.cc"
            together.parent.mkdir(exist_ok=True)
            together.write_text("".join(f'#include "{ROOT / name}"\n' for name, *_ in unit))
            looked = self.look(unit[0], together, ["--checks=-bugprone-suspicious-include"])
            together.unlink()
            if looked.returncode != 0:
                found = [complaint for file in unit for complaint in self.check([file])]
                if not found:
                    errors = re.findall(r"error: .*", looked.stdout + looked.stderr)
                    print(f"lint: slow, because {len(unit)} files from {unit[0][0]} on do not go together: {errors[:1]}", flush=True)
                return found
        else:
            looked = self.look(unit[0], ROOT / unit[0][0])
            if looked.returncode != 0:
                return [looked.stdout + ("" if looked.stdout.strip() else looked.stderr)]
        for *_, mark in unit:
            mark.touch()
        return []

    def look(self, file, source, options=()):
        """One pass: clang's own warnings, its thread-safety analysis among them, come out of clang-tidy."""
        name, flags, folder, _ = file
        if ONLY_COMPILED.search(name):
            return run(["clang++", *flags, *CLANG_FLAGS, "-Werror", "-fsyntax-only", str(source)], folder)
        return run(["clang-tidy", "--quiet", f"--config-file={ROOT / '.clang-tidy'}", *options, str(source), "--", *flags,
                    *CLANG_FLAGS], folder)


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
    compiled = commands(build, files)
    linter = Linter(build, ROOT / "build" / "lint-cache")
    units = linter.units(compiled)
    with concurrent.futures.ThreadPoolExecutor(max_workers=jobs) as pool:
        # The longest first, so that no core is idle at the end.
        futures = [pool.submit(linter.check, unit) for unit in sorted(units, key=len, reverse=True)]
        for future in concurrent.futures.as_completed(futures):
            found = future.result()
            complaints += found
            for complaint in found:
                print(complaint, flush=True)
    forget_old(linter.cache)
    looked_at = sum(map(len, units))
    count = len(compiled) - len(linter.skipped)
    return complaints, count, count - looked_at, sorted(linter.skipped)


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
