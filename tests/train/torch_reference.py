#!/usr/bin/env python3
"""deepfm by PyTorch alone, in one process, from the initial weights and on the batches that a job of Starling had.

usage: torch_reference.py SPEC.json

SPEC names train (a file of criteo lines), test (or null), dump (of the job: its variables and the vectors of every field), batch,
steps (0: all of train), rows and dense (the optimizers: [name, lr]), clip (the norm of a variable's gradient at most; 0: any).
Prints {"losses": [...], "auc": ...} as JSON.
"""
import json
import math
import sys

import torch

FIELDS = 26
DENSE = 13


def number_of(text):
    """As the transform `log` makes it."""
    x = float(text) if text else 0.0
    return math.copysign(math.log1p(abs(x)), x)


def read_lines(path):
    with open(path, encoding="ascii") as file:
        for line in file:
            values = line.rstrip("\n").split("\t")
            yield float(values[0]), [number_of(text) for text in values[1:1 + DENSE]], values[1 + DENSE:]


def read_dump(path):
    variables, samples = {}, []
    with open(path, encoding="ascii") as file:
        for line in file:
            one = json.loads(line)
            if "variable" in one:
                variables[one["variable"]] = torch.tensor(one["values"], dtype=torch.float32).reshape(one["shape"]).requires_grad_()
            else:
                samples.append(one)
    return variables, samples


class Model:
    """One row of `rows` per (field, text); row 0 stands for a missing value and stays zero."""

    def __init__(self, lines, samples, variables):
        self.numbers, first = {}, [None]
        for (_, _, texts), sample in zip(lines, samples):
            for field, text in enumerate(texts):
                if text and (field, text) not in self.numbers:
                    self.numbers[field, text] = len(first)
                    # What its first lookup answered is what the row started with.
                    first.append(sample["fields"][f"C{field + 1}"])
        first[0] = [0.0] * len(first[1])
        self.rows = torch.tensor(first, dtype=torch.float32).requires_grad_()
        self.variables = variables
        self.layers = len([name for name in variables if name.endswith(".bias")])

    def inputs(self, lines):
        keys = [[self.numbers.get((field, text), 0) for field, text in enumerate(texts)] for _, _, texts in lines]
        return (torch.tensor(keys), torch.tensor([dense for _, dense, _ in lines]),
                torch.tensor([[label] for label, _, _ in lines]))

    def logits(self, keys, dense):
        rows = torch.nn.functional.embedding(keys, self.rows, padding_idx=0)
        factors = rows[:, :, 1:]
        total = factors.sum(1)
        pairs = (total * total - (factors * factors).sum(1)).sum(1, keepdim=True) * 0.5
        x = torch.cat([factors.reshape(len(keys), -1), dense], 1)
        for i in range(self.layers):
            x = torch.nn.functional.linear(x, self.variables[f"deep.{i}.weight"], self.variables[f"deep.{i}.bias"])
            x = torch.relu(x) if i + 1 < self.layers else x
        return x + rows[:, :, :1].sum(1) + pairs + dense @ self.variables["fm.weight"].t()


def optimizer(rule, parameters):
    name, lr = rule
    kind = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.Adam}[name]
    return kind(parameters, lr=lr)


def auc_of(scores, labels):
    order = sorted(range(len(scores)), key=scores.__getitem__)
    ranks, positives = 0, 0
    for rank, i in enumerate(order):
        if labels[i] > 0.5:
            ranks += rank
            positives += 1
    return (ranks - positives * (positives - 1) / 2) / (positives * (len(scores) - positives))


def main(spec):
    torch.set_num_threads(1)
    lines = list(read_lines(spec["train"]))
    if spec["steps"]:
        lines = lines[:spec["steps"] * spec["batch"]]
    variables, samples = read_dump(spec["dump"])
    assert [line[0] for line in lines] == [one["labels"][0] for one in samples[:len(lines)]], "another order of samples"
    model = Model(lines, samples, variables)
    optimizers = [optimizer(spec["rows"], [model.rows]), optimizer(spec["dense"], list(variables.values()))]
    losses = []
    for begin in range(0, len(lines), spec["batch"]):
        keys, dense, labels = model.inputs(lines[begin:begin + spec["batch"]])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model.logits(keys, dense), labels)
        for one in optimizers:
            one.zero_grad()
        loss.backward()
        for variable in variables.values() if spec["clip"] else ():
            torch.nn.utils.clip_grad_norm_([variable], spec["clip"])
        for one in optimizers:
            one.step()
        losses.append(loss.item())
    auc = None
    if spec["test"]:
        with torch.no_grad():
            keys, dense, labels = model.inputs(list(read_lines(spec["test"])))
            auc = auc_of(model.logits(keys, dense).flatten().tolist(), labels.flatten().tolist())
    print(json.dumps({"losses": losses, "auc": auc}))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="ascii") as told:
        main(json.load(told))
