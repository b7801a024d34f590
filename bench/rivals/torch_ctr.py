#!/usr/bin/env python3
"""The rival of bench/scenarios/train.py: one process of PyTorch with sparse embeddings, its data ready in memory.

usage: torch_ctr.py DATA.tsv SECONDS THREADS

Reads generated criteo lines, numbers their keys, then trains ctr_dnn (26 x 16 + 13, 400-400-400-1) in batches of 512 with sparse
adagrad on the rows and adam on the network, over and over for SECONDS. Prints {"samples_per_s": N, "torch": VERSION} as JSON.
"""
import json
import math
import sys
import time

import torch

DIM, FIELDS, DENSE, BATCH, HIDDEN = 16, 26, 13, 512, 400


def read(path):
    numbers, keys, dense, labels = {}, [], [], []
    with open(path, encoding="ascii") as file:
        for line in file:
            values = line.rstrip("\n").split("\t")
            labels.append(float(values[0]))
            dense.append([math.log1p(abs(float(x))) if x else 0.0 for x in values[1:1 + DENSE]])
            keys.append([numbers.setdefault((f, text), len(numbers)) for f, text in enumerate(values[1 + DENSE:])])
    return torch.tensor(keys), torch.tensor(dense), torch.tensor(labels).unsqueeze(1), len(numbers)


def main(path, seconds, threads):
    torch.set_num_threads(threads)
    keys, dense, labels, count = read(path)
    rows = torch.nn.Embedding(count, DIM, sparse=True)
    torch.nn.init.normal_(rows.weight, std=0.01)
    sizes = [FIELDS * DIM + DENSE, HIDDEN, HIDDEN, HIDDEN, 1]
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers[:-1])
    optimizers = [torch.optim.Adagrad(rows.parameters(), lr=0.05), torch.optim.Adam(net.parameters(), lr=0.001)]
    loss_of = torch.nn.BCEWithLogitsLoss()
    trained, begin, since = 0, 0, None
    while since is None or time.perf_counter() - since < seconds:
        if begin + BATCH > len(keys):
            begin = 0
        part = slice(begin, begin + BATCH)
        begin += BATCH
        for one in optimizers:
            one.zero_grad()
        x = torch.cat([rows(keys[part]).flatten(1), dense[part]], 1)
        loss_of(net(x), labels[part]).backward()
        for one in optimizers:
            one.step()
        trained += BATCH
        if since is None and trained >= 20 * BATCH:  # warm by now
            trained, since = 0, time.perf_counter()
    print(json.dumps({"samples_per_s": trained / (time.perf_counter() - since), "torch": torch.__version__}))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
