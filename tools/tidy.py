#!/usr/bin/env python3
"""Checks the rules of the house that a compiler does not know.

usage: tools/tidy.py [ROOT]

Every folder under src/ is a room with a door plate, README.md: `# name`, then the lines Holds, Uses, Threads and Door.
  plate     each room has one; its Door headers exist; what it uses is allowed by ALLOWED below
  include   a room includes only rooms of its plate, and of those only door headers (of a role only client.h)
  cycle     neither headers nor rooms include each other in a circle
  library   gRPC, libtorch and yaml-cpp are seen by one room each
  getenv    only conf reads the environment (handing environ to a child is none of it)
  header    a header opens with a comment that has `Uses:` and `Threads:`, and has #pragma once
  listed    each .cc is named in a CMakeLists.txt of its room (a test that is not listed never runs)
  length    files have at most 800 lines, functions at most 70
  words     no notes to self in the code, no promises in documents, no paths of one machine anywhere
  supp      a suppression of a sanitizer names a frame of a library built without it, below its reason
  path      each path and make target that a document names exists
A folder inside a room (src/net/grpc) stands under its room's plate. It may have a plate of its own, which can only use
less than its room does; it then includes what both plates name. Tests and benchmarks beside the code obey the same rules,
but may include any library. The folders bin, py, tests and bench wire things up and may include every door, tests and bench
also what a room has for tests alone (x_testing.h, test_x.h); their own headers are nobody's business.
"""

import ast
import dataclasses
import itertools
import pathlib
import re
import sys

# STYLE: room -> what it may use. Of a role others see only client.h.
ROLES = {"scheduler", "ps", "hub", "trainer"}
ROLE_COMMON = {"base", "conf", "wire", "net", "store"}
ALLOWED = {
    "base": set(),
    "conf": {"base"},
    "wire": {"base"},
    "store": {"base"},
    "table": {"base"},
    "data": {"base"},
    "net": {"base", "wire"},
    "scheduler": ROLE_COMMON,
    "ps": ROLE_COMMON | {"table", "scheduler"},
    "hub": ROLE_COMMON | {"data", "scheduler", "ps"},
    "worker": {"base", "conf", "wire", "net", "table", "scheduler", "ps", "hub"},
    "trainer": {"base", "conf", "wire", "net", "table", "store", "worker", "scheduler", "ps", "hub"},
    "kv": {"base", "conf", "wire", "net", "scheduler"},
}
WIRING = {"bin", "py"}
DRAWERS = {"common", "util", "utils", "misc", "core", "helpers", "lib"}
# A library -> the folder that alone may include it, tests and benchmarks beside the code excepted.
HOMES = [
    ("gRPC", re.compile(r"^(grpc|grpcpp|grpc\+\+)/|\.grpc\.pb\.h$"), "net/grpc"),
    ("libtorch", re.compile(r"^(torch|ATen|c10)/"), "trainer"),
    ("yaml-cpp", re.compile(r"^yaml-cpp/"), "conf"),
]
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
PLATE_WORDS = ["Holds", "Uses", "Threads", "Door"]
SKIPPED_FOLDERS = {".git", "build", "__pycache__", ".cache", "out", "node_modules", ".venv", ".vscode", ".idea"}
CPP = {".h", ".cc", ".cpp", ".inc"}
CODE = CPP | {".py", ".sh", ".proto", ".cmake", ".txt", ".json", ".yaml", ".yml", ""}
# Written in two halves, so that this file passes its own check.
NOTES = re.compile(r"\b(" + "|".join(["TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK"]) + r")\b")
PROMISES = re.compile(r"\b(T" r"BD|coming so" r"on|to be wri" r"tten)\b", re.IGNORECASE)
MACHINE_PATH = re.compile(r"(?<![\w.:/*-])/(?:home|root|work|Users)/[\w.]")
# Debian's libraries under us, by file or by the namespace of what their headers compile into ours.
SUPPRESSION = re.compile(r"^(race|called_from_lib|leak):((libabsl_|libgrpc|libgpr|libupb|libssl|libcrypto|libcares|libtorch_)[\w+.]*"
                         r"|(grpc|absl)::[\w:]+)$")
PATH_ENDINGS = (".h", ".cc", ".md", ".py", ".proto", ".cmake", ".sh", ".txt", ".supp")


@dataclasses.dataclass(frozen=True, order=True)
class Problem:
    path: str
    line: int
    rule: str
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclasses.dataclass
class Plate:
    uses: set
    door: set


class Tree:
    """The files of a repository, read once."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.text = {}
        for path in sorted(self.root.rglob("*")):
            relative = path.relative_to(self.root)
            if SKIPPED_FOLDERS & set(relative.parts[:-1]) or path.is_symlink() or not path.is_file():
                continue
            data = path.read_bytes()
            if b"\0" in data[:8192]:
                continue
            self.text[relative.as_posix()] = data.decode(errors="replace")
        self.rooms = sorted({p.split("/")[1] for p in self.text if p.startswith("src/") and p.count("/") >= 2})
        self.plates = {}  # by the folder below src/: of rooms, and of folders inside of them that have one

    def cpp(self, *tops):
        return [p for p in self.text if pathlib.PurePosixPath(p).suffix in CPP and p.split("/")[0] in tops]

    def exists(self, relative):
        return relative in self.text or (self.root / relative).exists()


def is_aside(path):
    """Tests, benchmarks and fuzzers beside the code, and what only they use (test_x.cc, x_testing.h, a conformance suite)."""
    return re.search(r"_(test|bench|fuzz|testing)\.\w+$|/test_\w+\.\w+$|/conformance/", path) is not None


def room_of(path):
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def blank(text, keep_strings=False):
    """C++ with comments, literals and preprocessor lines turned into spaces; lines keep their numbers."""
    pattern = re.compile(
        r'(?P<raw>R"(?P<mark>[^(\s]*)\((?:.|\n)*?\)(?P=mark)")'
        r'|(?P<string>"(?:\\.|[^"\\\n])*")'
        r"|(?P<char>(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+')"
        r"|(?P<comment>//(?:\\\n|[^\n])*|/\*(?:.|\n)*?\*/)"
        r"|(?P<directive>^[ \t]*#(?:\\\n|[^\n])*)", re.MULTILINE)

    def spaces(match):
        if keep_strings and match.lastgroup in ("raw", "mark", "string", "char", "directive"):
            return match.group(0)
        return re.sub(r"[^\n]", " ", match.group(0))

    return pattern.sub(spaces, text)


def check_plates(tree):
    for room in tree.rooms:
        path = f"src/{room}/README.md"
        if room in DRAWERS:
            yield Problem(f"src/{room}", 1, "plate", f"'{room}' is a drawer, not a room: say what it refuses to hold")
        if room not in ALLOWED and room not in WIRING:
            yield Problem(path, 1, "plate", f"room '{room}' is not in the table of STYLE (ALLOWED in tools/tidy.py)")
        if path not in tree.text:
            yield Problem(path, 1, "plate", f"room '{room}' has no door plate")
            continue
        plate, problems = read_plate(tree, f"src/{room}")
        yield from problems
        tree.plates[room] = plate
        for other in sorted(plate.uses - ALLOWED.get(room, set(tree.rooms))):
            if room not in WIRING:
                yield Problem(path, 1, "plate", f"'{room}' may not use '{other}'")
    for path in sorted(tree.text):
        parts = path.split("/")
        if parts[0] == "src" and len(parts) > 3 and parts[-1] == "README.md" and parts[1] in tree.plates:
            plate, problems = read_plate(tree, "/".join(parts[:-1]))
            yield from problems
            tree.plates["/".join(parts[1:-1])] = plate
            for other in sorted(plate.uses - tree.plates[parts[1]].uses - {parts[1]}):
                yield Problem(path, 1, "plate", f"uses '{other}', which the plate of '{parts[1]}' does not")


def read_plate(tree, folder):
    path = f"{folder}/README.md"
    lines = tree.text[path].splitlines()
    found = {}
    problems = []
    name = folder[len("src/"):]
    if not lines or lines[0].strip() not in (f"# {name}", f"# {name.split('/')[-1]}"):
        problems.append(Problem(path, 1, "plate", f"the first line has to be '# {name}'"))
    for number, line in enumerate(lines, 1):
        word, colon, rest = line.partition(":")
        if colon and word in PLATE_WORDS and word not in found:
            found[word] = (number, rest.strip())
    for word in PLATE_WORDS:
        if word not in found:
            problems.append(Problem(path, 1, "plate", f"no '{word}:' line"))
    uses_text = found.get("Uses", (1, ""))[1]
    # A word that is not a room is a library, which HOMES and the linker look after.
    uses = {word.split("/")[0] for word in re.findall(r"[\w/.+-]+", uses_text)}
    uses &= set(tree.rooms) | set(ALLOWED)
    number, door_text = found.get("Door", (1, ""))
    door = set(re.findall(r"[\w/.-]+\.h\b", door_text))
    for header in sorted(door):
        if not tree.exists(f"{folder}/{header}"):
            problems.append(Problem(path, number, "plate", f"door header '{header}' does not exist"))
    return Plate(uses, door), problems


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]')


def includes(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def check_includes(tree):
    for path in tree.cpp("src", "tests", "bench"):
        for number, quoted, name in includes(tree.text[path]):
            yield from check_library(path, number, name)
            first = name.split("/")[0]
            if quoted and "/" not in name and tree.exists(str(pathlib.PurePosixPath(path).parent / name)):
                yield Problem(path, number, "include", f"write \"{name}\" with its path from src/")
            if first not in tree.rooms or "/" not in name:
                continue
            generated = name.endswith(".pb.h") and tree.exists(f"src/{name[:-len('.pb.h')]}.proto")
            if tree.exists(f"src/{name}") or generated:
                if not quoted:
                    yield Problem(path, number, "include", f"write <{name}> in quotes: it is ours")
                if room_of(path) != first:
                    yield from check_door(tree, path, number, name)
            elif quoted:  # in brackets it is the system's, such as <net/if.h>
                yield Problem(path, number, "include", f"\"{name}\" does not exist under src/")


def check_door(tree, path, number, name):
    room, other, header = room_of(path), *name.split("/", 1)
    if room is None and is_aside(name):
        return
    if room is not None and room not in WIRING:
        if other not in ALLOWED.get(room, set()):
            yield Problem(path, number, "include", f"room '{room}' may not use room '{other}'")
            return
        if room in tree.plates and other not in tree.plates[room].uses:
            yield Problem(path, number, "include", f"room '{other}' is not in the Uses line of src/{room}/README.md")
        folder = str(pathlib.PurePosixPath(path).parent.relative_to("src"))
        if folder != room and folder in tree.plates and other not in tree.plates[folder].uses:
            yield Problem(path, number, "include", f"room '{other}' is not in the Uses line of src/{folder}/README.md")
        if other in ROLES and header != "client.h":
            yield Problem(path, number, "include", f"of the role '{other}' others see only client.h, not \"{name}\"")
            return
    if other in tree.plates and header not in tree.plates[other].door:
        yield Problem(path, number, "include", f"\"{name}\" is not a door header of '{other}' (src/{other}/README.md)")


def check_library(path, number, name):
    if not path.startswith("src/") or is_aside(path):
        return
    for library, pattern, home in HOMES:
        if pattern.search(name) and not path.startswith(f"src/{home}/"):
            yield Problem(path, number, "library", f"{library} is included only in src/{home}")


def find_cycle(edges):
    """One circle of a graph (node -> nodes) as a list, or None."""
    state = {}

    def visit(node, trail):
        state[node] = "open"
        for other in sorted(edges.get(node, ())):
            if state.get(other) == "open":
                return trail[trail.index(other):] + [other] if other in trail else [node, other]
            if other not in state:
                circle = visit(other, trail + [other])
                if circle:
                    return circle
        state[node] = "done"
        return None

    for node in sorted(edges):
        if node not in state:
            circle = visit(node, [node])
            if circle:
                return circle
    return None


def check_cycles(tree):
    headers, rooms = {}, {}
    for path in tree.cpp("src"):
        for _, quoted, name in includes(tree.text[path]):
            if not quoted or f"src/{name}" not in tree.text:
                continue
            if path.endswith(".h"):
                headers.setdefault(path, set()).add(f"src/{name}")
            if room_of(path) != name.split("/")[0] and not is_aside(path):
                rooms.setdefault(room_of(path), set()).add(name.split("/")[0])
    for edges, where in ((headers, None), (rooms, "src")):
        circle = find_cycle(edges)
        if circle:
            yield Problem(where or circle[0], 1, "cycle", "includes go in a circle: " + " -> ".join(circle))


def check_environment(tree):
    pattern = re.compile(r"\b(?:secure_)?getenv\b|\b(?:set|unset|put)env\b|=\s*environ\b|\benviron\[")
    for path in tree.cpp("src"):
        if room_of(path) == "conf" or is_aside(path):
            continue
        for number, line in enumerate(blank(tree.text[path]).splitlines(), 1):
            match = pattern.search(line)
            if match:
                yield Problem(path, number, "getenv", f"{match.group(0)}: only conf reads the environment")


def check_suppressions(tree):
    for path, text in tree.text.items():
        if not path.endswith(".supp"):
            continue
        has_reason = False
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith("#") or not line.strip():
                has_reason = line.startswith("#")
                continue
            if not SUPPRESSION.match(line):
                yield Problem(path, number, "supp", f"'{line}' is no frame of a library that is built without the sanitizer")
            if not has_reason:
                yield Problem(path, number, "supp", f"'{line}' has no reason above it")


def check_headers(tree):
    for path in tree.cpp("src"):
        if not path.endswith(".h"):
            continue
        opening = "".join(itertools.takewhile(
            lambda line: line.startswith("//"), tree.text[path].splitlines(keepends=True)))
        for word in ("Uses:", "Threads:"):
            if word not in opening:
                yield Problem(path, 1, "header", f"the comment that opens the header has no '{word}'")
        if "#pragma once" not in tree.text[path]:
            yield Problem(path, 1, "header", "no #pragma once")


def check_listed(tree):
    for path in tree.cpp("src", "tests", "bench"):
        if not path.endswith(".cc"):
            continue
        folder = pathlib.PurePosixPath(path).parent
        named = False
        for parent in [folder, *folder.parents]:
            listing = tree.text.get(f"{parent}/CMakeLists.txt", "")
            name = str(pathlib.PurePosixPath(path).relative_to(parent))
            named = named or re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w.-])", listing) is not None
        # The fuzz driver is added by the CMake function that adds a fuzzer.
        named = named or path in tree.text.get("cmake/starling.cmake", "")
        if not named:
            yield Problem(path, 1, "listed", "is in no CMakeLists.txt, so it is neither built nor run")


CONTAINER = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


def cpp_functions(text):
    """(line, lines of the body) of every function: a block that is not a type, a namespace or a value, outside of all functions."""
    code = blank(text)
    stack = []
    head_start = 0
    line = 1
    for index, char in enumerate(code):
        if char == "\n":
            line += 1
        elif char == "{":
            head = code[head_start:index]
            if any(kind == "function" for kind, _ in stack):
                kind = "inner"
            elif re.search(r"=\s*$|\breturn\s*$", head):
                kind = "inner"
            elif CONTAINER.search(head) and not re.search(r"\)[^)]*$", re.sub(r"\b(?:alignas|__attribute__|ABSL_\w+)\s*\([^)]*\)+", "", head)):
                kind = "container"
            else:
                kind = "function"
            stack.append((kind, line))
            head_start = index + 1
        elif char == "}":
            if stack:
                kind, start = stack.pop()
                if kind == "function":
                    yield start, max(0, line - start - 1)
            head_start = index + 1
        elif char == ";":
            head_start = index + 1


def check_lengths(tree):
    for path, text in tree.text.items():
        suffix = pathlib.PurePosixPath(path).suffix
        if suffix not in CPP | {".py", ".proto"}:
            continue
        lines = text.count("\n")
        if lines > FILE_LINES_MAX:
            yield Problem(path, lines, "length", f"{lines} lines, at most {FILE_LINES_MAX}")
        functions = []
        if suffix in CPP:
            functions = cpp_functions(text)
        elif suffix == ".py":
            functions = [(node.lineno, node.end_lineno - node.lineno) for node in ast.walk(ast.parse(text))
                         if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        for line, length in functions:
            if length > FUNCTION_LINES_MAX:
                yield Problem(path, line, "length", f"a function of {length} lines, at most {FUNCTION_LINES_MAX}")


def check_words(tree):
    for path, text in tree.text.items():
        suffix = pathlib.PurePosixPath(path).suffix
        for number, line in enumerate(text.splitlines(), 1):
            note = NOTES.search(line) if suffix in CODE and path != "LICENSE" else None
            promise = PROMISES.search(line) if suffix == ".md" else None
            machine = MACHINE_PATH.search(line)
            for match, why in ((note, "do it or file it"), (promise, "a document says what is"),
                               (machine, "a path of one machine")):
                if match:
                    yield Problem(path, number, "words", f"'{match.group(0)}': {why}")


def expand(name):
    """`client.{h,cc}` -> client.h, client.cc."""
    match = re.search(r"\{([^{}]*)\}", name)
    if not match:
        return [name]
    return [r for part in match.group(1).split(",") for r in expand(name[:match.start()] + part + name[match.end():])]


def names_path(tree, word):
    """True when a word in a document has to be a path of the repository."""
    if re.search(r"[<>…$=:\"'|]|\.\.\.|^[-/~]|^build/|^\W*$", word) or not re.fullmatch(r"[\w./{},*+-]+", word):
        return False
    # x.cc and x_test.cc stand for any file.
    if re.search(r"(^|/)x(_\w+)?\.\w+$", word):
        return False
    if "/" not in word:
        return word.endswith(PATH_ENDINGS)
    first = word.split("/")[0]
    return word.endswith(PATH_ENDINGS) or (tree.root / first).is_dir() or (tree.root / "src" / first).is_dir()


def path_exists(tree, document, word):
    word = word.rstrip("/")
    folder = pathlib.PurePosixPath(document).parent
    for base in (pathlib.PurePosixPath("."), folder, pathlib.PurePosixPath("src")):
        candidate = (base / word).as_posix()
        if "*" in word:
            if any(pathlib.PurePosixPath(p).match(candidate) for p in tree.text):
                return True
        elif tree.exists(candidate):
            return True
    return "/" not in word and any(p.split("/")[-1] == word for p in tree.text)


def check_documents(tree):
    targets = set(re.findall(r"^([a-z][\w-]*):", tree.text.get("Makefile", ""), re.MULTILINE))
    for document, text in tree.text.items():
        if not document.endswith(".md"):
            continue
        fenced = False
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
                continue
            quotes = [line] if fenced else re.findall(r"`([^`]+)`", line)
            for target in (t for quote in quotes for t in re.findall(r"^\s*make ([a-z][\w-]*)", quote)):
                if target not in targets:
                    yield Problem(document, number, "path", f"there is no `make {target}`")
            words = [] if fenced else [word.rstrip(".,;:") for quote in quotes for word in quote.split()]
            for word in (r for w in words if names_path(tree, w) for r in expand(w)):
                if not path_exists(tree, document, word):
                    yield Problem(document, number, "path", f"`{word}` does not exist")
            for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", "" if fenced else line):
                if "://" not in link and not link.startswith("mailto:") and not path_exists(tree, document, link):
                    yield Problem(document, number, "path", f"the link to {link} leads nowhere")


CHECKS = [check_plates, check_includes, check_cycles, check_environment, check_suppressions, check_headers, check_listed,
          check_lengths, check_words, check_documents]


def tidy(root):
    """All problems of the tree at `root`, sorted, and the number of files."""
    tree = Tree(root)
    problems = [problem for check in CHECKS for problem in check(tree)]
    return sorted(set(problems)), len(tree.text)


def main(arguments):
    root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent
    problems, files = tidy(root)
    for problem in problems:
        print(problem)
    print(f"tidy: {files} files, {len(problems) or 'no'} problem{'s' if len(problems) > 1 else ''}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
