#!/usr/bin/env python3
"""Scores lines with what `starling export` wrote beside this file.

usage: score.py [FILE]     the scores of each line of FILE (or of standard input), in its order; several labels have a space between

Needs numpy and torch (Debian: python3-numpy, python3-torch), and XXH3: the module xxhash (python3-xxhash) or the library
libxxhash.so.0 (libxxhash0). In a program: `Scorer(folder).score(line)`.

  network.pt        the dense network: forward(fields, dense[, lengths]) gives logits
  NAME.keys.npy     the keys of a table, NAME.weights.npy their rows, in the same order
  recipe.json       dataset: how a line becomes keys and numbers; schema: the tables; loss: what makes scores of logits
"""
import bisect
import ctypes
import json
import math
import pathlib
import struct
import sys

import numpy
import torch

try:
    from xxhash import xxh3_64_intdigest as hash_bytes
except ImportError:
    _xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits_withSeed
    _xxh3.argtypes, _xxh3.restype = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64], ctypes.c_uint64

    def hash_bytes(data, seed):
        return _xxh3(data, len(data), seed)

FULL = (1 << 64) - 1
HALF = (1 << 32) - 1


def hash_number(number, seed):
    return hash_bytes(struct.pack("<Q", number), seed)


def mix64(x):
    x = (x + 0x9e3779b97f4a7c15) & FULL
    x = ((x ^ (x >> 30)) * 0xbf58476d1ce4e5b9) & FULL
    x = ((x ^ (x >> 27)) * 0x94d049bb133111eb) & FULL
    return x ^ (x >> 31)


def draws(seed, name, key):
    """The 32-bit numbers that a row without a history starts with: Philox4x32-10 of (job seed, table, key)."""
    stream = 0xcbf29ce484222325
    for c in name.encode():
        stream = ((stream ^ c) * 0x100000001b3) & FULL
    mixed = mix64(mix64(seed) ^ mix64(stream))
    block = 0
    while True:
        c, k = [block & HALF, block >> 32, key & HALF, key >> 32], [mixed & HALF, mixed >> 32]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(b >> 32) ^ c[1] ^ k[0], b & HALF, (a >> 32) ^ c[3] ^ k[1], a & HALF]
            k = [(k[0] + 0x9E3779B9) & HALF, (k[1] + 0xBB67AE85) & HALF]
        yield from c
        block += 1


def normal(numbers):
    def uniform():
        low = next(numbers)
        return ((low | next(numbers) << 32) >> 11) * 2.0 ** -53
    radius = math.sqrt(-2 * math.log(1 - uniform()))
    return radius * math.cos(2 * math.pi * uniform())


def values_of(rule):
    return {one["name"]: one["value"] for one in rule["values"]}


class Table:
    def __init__(self, folder, options, seed):
        self.name, self.dim, self.seed = options["name"], options["dim"], seed
        keys = numpy.load(folder / f"{self.name}.keys.npy")
        self.order = numpy.argsort(keys)
        self.keys = keys[self.order]
        self.weights = numpy.load(folder / f"{self.name}.weights.npy", mmap_mode="r")
        rule = options.get("initializer", {"name": "", "values": []})
        self.start, self.values = rule["name"] or "zero", values_of(rule)
        is_admitted = options.get("admission", {"name": ""})["name"] in ("", "always")
        if not is_admitted and options["not_admitted"] == "NOT_ADMITTED_ZERO":
            self.start = "zero"
        self.first = 1 if "second" in options else self.dim  # weights that are not zero before a row has a history

    def row(self, key):
        at = numpy.searchsorted(self.keys, numpy.uint64(key))
        if at < len(self.keys) and self.keys[at] == key:
            return self.weights[self.order[at]]
        out = numpy.zeros(self.dim, numpy.float32)
        out[:self.first] = self.missing(key)[:self.first]
        return out

    def missing(self, key):
        get, numbers = self.values.get, draws(self.seed, self.name, key)
        if self.start in ("zero", "constant"):
            return numpy.full(self.dim, get("value", 0) if self.start == "constant" else 0, numpy.float32)
        if self.start in ("uniform", "xavier"):
            low, high = get("low", -0.01), get("high", 0.01)
            if self.start == "xavier":
                high = math.sqrt(6 / (get("fan_in", 1) + (get("fan_out", 0) or self.dim)))
                low = -high
            unit = numpy.array([(next(numbers) >> 8) * 2.0 ** -24 for _ in range(self.dim)], numpy.float32)
            return numpy.float32(low) + numpy.float32(high - low) * unit
        out = []
        while len(out) < self.dim:
            draw = normal(numbers)
            if self.start == "normal" or abs(draw) <= 2:
                out.append(get("mean", 0) + get("std", 0.01) * draw)
        return numpy.array(out, numpy.float32)


class Field:
    """What a column's bytes become: keys, or numbers for the network."""

    def __init__(self, options, is_text):
        self.name, self.is_text = options["name"], is_text
        self.kind = options["kind"].removeprefix("FIELD_KIND_").lower()
        self.table = options["table"] or self.name
        self.pooling = options["pooling"].removeprefix("POOLING_").lower()
        self.keys_max = options["keys_max"] or 4096
        self.column = options["column"] or self.name
        self.separator = options["separator"].encode()
        self.cross = options["cross"]
        self.fallback = options.get("fallback", "").encode()
        self.size = options["size"] or 1
        self.seed = int(options["salt"]) or hash_bytes(self.name.encode(), 0)
        self.steps, self.bounds = [], None
        self.is_hashed = is_text and not options["transforms"]
        for rule in options["transforms"]:
            values = values_of(rule)
            if rule["name"] == "hash":
                self.is_hashed = True
                self.seed = int(values.get("salt", self.seed))
            elif rule["name"] == "bucketise":
                self.bounds = list(values.values())
            else:
                self.steps.append((rule["name"], values))

    def transformed(self, x):
        for name, values in self.steps:
            if name == "log":
                x = math.copysign(math.log1p(abs(x)), x)
            elif name == "clip":
                x = min(max(x, values["low"]), values["high"])
            else:
                x = (x - values["mean"]) / values["std"]
        return x if self.bounds is None else bisect.bisect_right(self.bounds, x)

    def key(self, part):
        if self.is_hashed and self.is_text:
            return hash_bytes(part, self.seed)
        if self.bounds is not None:
            return hash_number(self.transformed(float(part)), self.seed)
        return hash_number(int(part), self.seed) if self.is_hashed else int(part)

    def parts(self, text):
        text = text or self.fallback
        if isinstance(text, list):
            return text
        return text.split(self.separator) if self.separator else [text]

    def keys(self, text):
        return [self.key(part) for part in self.parts(text) if part][:self.keys_max]

    def numbers(self, text):
        parts = self.parts(text)
        parts += [b""] * (self.size - len(parts))
        return [self.transformed(float(numpy.float32(float(part)))) if part else 0.0 for part in parts]


def cut_csv(line, delimiter, is_trimmed):
    """The columns of a line; a quote inside of quotes is written twice."""
    values, at = [], 0
    while at is not None:
        start = at
        while is_trimmed and line[start:start + 1] in (b" ", b"\t") and not line.startswith(delimiter, start):
            start += 1
        text, is_quoted = b"", line[start:start + 1] == b'"'
        if is_quoted:
            at = start + 1
            while True:
                quote = line.index(b'"', at)
                text, at = text + line[at:quote], quote + 1
                if line[at:at + 1] != b'"':
                    break
                text, at = text + b'"', at + 1
        end = line.find(delimiter, at)
        if not is_quoted:
            text = line[at:] if end < 0 else line[at:end]
            text = text.strip(b" \t") if is_trimmed else text
        values.append(text)
        at = None if end < 0 else end + len(delimiter)
    return values


class Scorer:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        recipe = json.loads((folder / "recipe.json").read_text(encoding="utf-8"))
        self.format, self.loss = recipe["dataset"]["format"], recipe["loss"]
        is_text = self.format["name"] in ("csv", "criteo")
        if not is_text and self.format["name"] != "multislot":
            raise ValueError(f"lines of the format {self.format['name']} are not read here")
        self.fields = [Field(options, is_text) for options in recipe["dataset"]["fields"]]
        schema = recipe["schema"]
        self.tables = {one["name"]: Table(folder, one, int(schema["seed"])) for one in schema["tables"]}
        self.network = torch.jit.load(str(folder / "network.pt"))
        self.columns = self.format["columns"]

    def read_header(self, line):
        """Of formats with a header: before the first line."""
        line = line.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")
        self.columns = [name.decode() for name in cut_csv(line, self.delimiter(), True)]

    def delimiter(self):
        return (self.format["delimiter"] or ",").encode()

    def texts(self, line):
        """What each field's column has; a list where the format counts the values."""
        if self.format["name"] == "multislot":
            words = line.split()[2 * (self.format["with_id"] + self.format["with_content"]):]
            slots, at = [], 0
            while at < len(words):
                slots.append(words[at + 1:at + 1 + int(words[at])])
                at += 1 + int(words[at])
            return self.by_slot(slots)
        if self.format["name"] == "criteo":
            names = ["label"] + [f"I{i}" for i in range(1, 14)] + [f"C{i}" for i in range(1, 27)]
            values = line.split(b"\t")
            values = [b""] * (len(names) - len(values)) + values  # lines to score may have no label
        else:
            names, values = self.columns, cut_csv(line, self.delimiter(), self.format["trim"])
        out = {}
        for field in self.fields:
            if field.kind in ("keys", "dense") and not field.cross:
                at = names.index(field.column) if field.column in names else int(field.column)
                out[field.name] = values[at]
        return out

    def by_slot(self, slots):
        out, slot = {}, 0
        for field in self.fields:
            if field.cross or (self.format["with_id"] and field.kind == "id"):
                continue
            if field.column in self.columns:
                slot = self.columns.index(field.column)
            elif field.column != field.name:
                slot = int(field.column)
            out[field.name] = slots[slot]
            slot += 1
        return out

    def crossed(self, field, keys):
        out = [field.seed]
        for name in field.cross:
            out = [hash_number(key, before) for before in out for key in keys[name]][:field.keys_max]
        return out

    def score(self, line):
        """The scores of a line (bytes), one per label."""
        texts = self.texts(line.rstrip(b"\r\n"))
        keys = {field.name: field.keys(texts[field.name]) for field in self.fields if field.kind == "keys" and not field.cross}
        keys |= {field.name: self.crossed(field, keys) for field in self.fields if field.cross}
        dense = [x for field in self.fields if field.kind == "dense" for x in field.numbers(texts[field.name])]
        fields, lengths = {}, {}
        for field in self.fields:
            if field.kind != "keys":
                continue
            table, mine = self.tables[field.table], keys[field.name]
            rows = numpy.stack([table.row(key) for key in mine] or [numpy.zeros(table.dim, numpy.float32)])
            if field.pooling == "none":
                lengths[field.name] = torch.tensor([len(mine)])
            else:
                rows = rows.sum(0) / numpy.float32(len(mine) if field.pooling == "mean" and mine else 1)
            fields[field.name] = torch.from_numpy(rows).unsqueeze(0)
        inputs = [fields, torch.tensor([dense], dtype=torch.float32)] + ([lengths] if lengths else [])
        with torch.no_grad():
            logits = self.network(*inputs)
        makers = {"bce": torch.sigmoid, "softmax": lambda x: torch.softmax(x, 1)}
        return makers.get(self.loss, lambda x: x)(logits)[0].tolist()


def main(path):
    scorer = Scorer(pathlib.Path(__file__).parent)
    with open(path, "rb") if path else sys.stdin.buffer as lines:
        if scorer.format["header"]:
            scorer.read_header(next(lines))
        for line in lines:
            if line.strip(b"\r\n"):
                print(*(f"{score:.9g}" for score in scorer.score(line)))


if __name__ == "__main__":
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(__doc__)
    main(sys.argv[1] if len(sys.argv) == 2 else "")
