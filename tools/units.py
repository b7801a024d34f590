#!/usr/bin/env python3
"""Packs C++ files into units that can be compiled as one: most of the time goes into the headers that they share.

usage: tools/units.py KB_MAX FILE...     prints the files of a unit on a line, separated by semicolons

A unit has at most KB_MAX of text, or one file that has more. Two files that define the same name at the start of a line, in an unnamed
namespace say, do not go together.
"""

import dataclasses
import pathlib
import re
import sys

DEFINED = re.compile(r"^(?:(?:struct|class|enum class|enum) (?:\w+\([^)]*\) )?(\w+)|using (\w+) =|#define (\w+)|\} (\w+)(?:\[|;| =)|"
                     r"\w[\w:<>,&*\[\] ]*?[\w>&*] ?\b(\w+)(?:\(|\{| =|\[))", re.MULTILINE)
# Highway reads such a file once for each target of the processor, by its name; one with mutants in it is linked in place of the library's.
ALONE = re.compile(r'^#include (?:<hwy/foreach_target.h>|"\w+/mutants.h")', re.MULTILINE)


@dataclasses.dataclass
class Unit:
    files: list = dataclasses.field(default_factory=list)
    names: set = dataclasses.field(default_factory=set)
    chars: int = 0


def packed(files, kb_max):
    """Lists of files, in as few units as their names allow. `files`: (file, its text)."""
    units, alone = [], []
    for file, text in files:
        if ALONE.search(text):
            alone.append([file])
            continue
        names = {name for found in DEFINED.findall(text) for name in found if name}
        fits = (unit for unit in units if unit.chars + len(text) <= kb_max * 1000 and not unit.names & names)
        unit = next(fits, None)
        if unit is None:
            unit = Unit()
            units.append(unit)
        unit.files.append(file)
        unit.names |= names
        unit.chars += len(text)
    return alone + [unit.files for unit in units]


def main(arguments):
    files = [(name, pathlib.Path(name).read_text(errors="replace")) for name in arguments[1:]]
    for unit in packed(files, int(arguments[0])):
        print(";".join(unit))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
