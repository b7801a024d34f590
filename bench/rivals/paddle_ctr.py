#!/usr/bin/env python3
"""A rival of bench/scenarios/train.py: Paddle's parameter server, one server and one worker, asynchronous, data in memory.

usage: paddle_ctr.py DATA.tsv SECONDS THREADS         (with the Python that bench/rivals/setup.sh made)

Writes the generated criteo lines as slots, starts itself as the server and as the worker, and trains ctr_dnn (26 x 16 + 13,
400-400-400-1) in batches of 512 with adagrad on the rows and adam on the network: once to be warm, then whole passes until SECONDS
are over. Prints {"samples_per_s": N, "paddle": VERSION} as JSON.
"""
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time

DIM, FIELDS, DENSE, BATCH, HIDDEN = 16, 26, 13, 512, 400
TABLE = "ids"


def write_slots(source, target):
    """label, dense values and one key per field, each with its count before it; the number of samples."""
    numbers, samples = {}, 0
    with open(source, encoding="ascii") as lines, open(target, "w", encoding="ascii") as out:
        for line in lines:
            values = line.rstrip("\n").split("\t")
            dense = " ".join(f"{math.log1p(abs(float(x))):.5f}" if x else "0" for x in values[1:1 + DENSE])
            keys = " ".join(f"1 {numbers.setdefault((f, text), len(numbers) + 1)}" for f, text in enumerate(values[1 + DENSE:]))
            out.write(f"1 {values[0]} {DENSE} {dense} {keys}\n")
            samples += 1
    return samples


def build(paddle, fleet):
    """The program with its optimizer; gives what the data set fills."""
    label = paddle.static.data("label", [None, 1], "int64")
    dense = paddle.static.data("dense", [None, DENSE], "float32")
    keys = [paddle.static.data(f"C{i}", [None, 1], "int64", lod_level=1) for i in range(FIELDS)]
    rows = paddle.ParamAttr(name=TABLE, initializer=paddle.nn.initializer.Normal(std=0.01))
    x = paddle.concat([paddle.static.nn.sparse_embedding(key, size=[2, DIM], param_attr=rows) for key in keys] + [dense], axis=1)
    for _ in range(3):
        x = paddle.static.nn.fc(x, HIDDEN, activation="relu")
    loss = paddle.nn.functional.binary_cross_entropy_with_logits(paddle.static.nn.fc(x, 1), paddle.cast(label, "float32"))
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    rule = {"name": "StdAdaGradSGDRule", "adagrad.learning_rate": 0.5, "adagrad.initial_g2sum": 0.01,
            "adagrad.initial_range": 0.01, "adagrad.weight_bounds": [-10.0, 10.0]}
    table = {"table_class": "MemorySparseTable", "shard_num": 16, "accessor.accessor_class": "SparseAccessor",
             "accessor.fea_dim": DIM + 2, "accessor.embedx_dim": DIM - 1, "accessor.embedx_threshold": 0}
    for part in ("embed", "embedx"):
        table |= {f"accessor.{part}_sgd_param.{key}": value for key, value in rule.items()}
    strategy.sparse_table_configs = {TABLE: {f"table_parameters.{TABLE}.{key}": value for key, value in table.items()}}
    fleet.distributed_optimizer(paddle.optimizer.Adam(0.001), strategy).minimize(loss)
    return [label, dense, *keys]


def role(slots, samples, seconds, threads):
    """The server, until it is ended; or the worker, which prints its rate."""
    import paddle
    from paddle.distributed import fleet
    paddle.enable_static()
    fleet.init()
    inputs = build(paddle, fleet)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    dataset = paddle.distributed.InMemoryDataset()
    dataset.init(use_var=inputs, batch_size=BATCH, thread_num=threads, pipe_command="cat")
    dataset.set_filelist([slots])
    dataset.load_into_memory()

    def one_pass():
        executor.train_from_dataset(paddle.static.default_main_program(), dataset, thread=threads)

    one_pass()
    passes, since = 0, time.perf_counter()
    while passes == 0 or time.perf_counter() - since < seconds:
        one_pass()
        passes += 1
    rate = passes * samples / (time.perf_counter() - since)
    print(json.dumps({"samples_per_s": rate, "paddle": paddle.__version__}), flush=True)
    fleet.stop_worker()


def free_port():
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]


def main(data, seconds, threads):
    with tempfile.TemporaryDirectory() as folder:
        slots = os.path.join(folder, "slots.txt")
        samples = write_slots(data, slots)
        ports = free_port(), free_port()
        common = os.environ | {"PADDLE_PSERVERS_IP_PORT_LIST": f"127.0.0.1:{ports[0]}", "PADDLE_TRAINERS_NUM": "1",
                               "PADDLE_TRAINER_ENDPOINTS": f"127.0.0.1:{ports[1]}", "POD_IP": "127.0.0.1", "FLAGS_call_stack_level": "0"}
        command = [sys.executable, os.path.abspath(__file__), "role", slots, str(samples), str(seconds), str(threads)]
        roles = {"PSERVER": {"PADDLE_PORT": str(ports[0])}, "TRAINER": {"PADDLE_PORT": str(ports[1]), "PADDLE_TRAINER_ID": "0"}}
        logs = [os.path.join(folder, name) for name in roles]
        processes = []
        for log, (name, more) in zip(logs, roles.items()):
            with open(log, "w", encoding="utf-8") as out:
                processes.append(subprocess.Popen(command, env=common | {"TRAINING_ROLE": name} | more, stdout=out, stderr=out,
                                                  cwd=folder))  # Paddle leaves files where it runs
        # The worker waits for its server for ever, and the server does not end by itself.
        while all(process.poll() is None for process in processes):
            time.sleep(0.2)
        for process in processes:
            process.kill()
            process.wait()
        said = [line for log in logs for line in open(log, encoding="utf-8", errors="replace")]
    told = [line for line in said if line.startswith('{"samples_per_s"')]
    if not told:
        sys.exit(f"paddle: {''.join(said)[-2000:]}")
    print(told[-1].strip())


if __name__ == "__main__":
    if sys.argv[1] == "role":
        role(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    else:
        main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
