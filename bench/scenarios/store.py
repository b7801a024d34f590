"""Files of 1 GiB through the store: local disk against dd, HDFS against curl, decoders against their command-line tools.

Every row is the median of interleaved rounds. store_bench, dd and curl tell the time of their work themselves; gzip and
zstd do not, so theirs is the time of the process less that of one that only prints its version. Cold reads drop the file
from the page cache first; writes end with fsync on both sides. The checksum of the block stream is measured on one file, read
with it and without: two files of one disk differ by more than a checksum costs; checkpoints are written with write-behind and
read with read-ahead. HDFS runs on this machine (tools/hdfs.py) and
shares its cores with both clients; without Java its rows carry the reason and no numbers.

STARLING_BENCH_STORE=checksum,hdfs runs these parts alone, of: local, checksum, decode, hdfs.
"""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import run_bench

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MIB = 1 << 20


def run_quietly(command):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def bench_seconds(command):
    return float(run_quietly(command).stdout)


def dd_seconds(command):
    # "1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.52 s, 2.1 GB/s"
    return float(re.search(r"copied, ([0-9.e+-]+) s", run_quietly(command).stderr).group(1))


def curl_seconds(command):
    return float(run_quietly([*command, "-s", "-f", "-w", "%{stderr}%{time_total}"]).stderr)


def tool_seconds(command):
    """Output into /dev/null, so that nobody pays for a pipe; less the start of the process."""
    start = time.perf_counter()
    subprocess.run([command[0], "--version"], check=True, stdout=subprocess.DEVNULL)
    between = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - between - (between - start)


def drop_from_cache(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def medians(rounds, *contestants):
    """The median time of each contestant, in turns, the order reversed every other round."""
    times = [[] for _ in contestants]
    for number in range(rounds):
        order = list(range(len(contestants)))
        for i in order if number % 2 == 0 else reversed(order):
            times[i].append(contestants[i]())
    return [statistics.median(t) for t in times]


def speed(work, size, ours, rival, theirs, bar):
    return run_bench.row(work, "MB/s", size / ours / 1e6, rival, size / theirs / 1e6, bar=bar)


def cold(path, timed, command):
    drop_from_cache(path)
    return timed(command)


def fresh(path, timed, command):
    # Deleting the old file is nobody's work, and its blocks must not wait for write-back.
    if os.path.exists(path):
        os.remove(path)
    os.sync()
    return timed(command)


def local_rows(bench, folder, size, rounds):
    ours, theirs = (os.path.join(folder, name) for name in ("ours", "theirs"))
    write_dd = ["dd", "if=/dev/zero", f"of={theirs}", "bs=1M", f"count={size // MIB}", "conv=fsync"]
    read_ours = [bench, "read", ours]
    read_dd = ["dd", f"if={theirs}", "of=/dev/null", "bs=1M"]
    w_ours, w_dd = medians(rounds, lambda: fresh(ours, bench_seconds, [bench, "write", ours, str(size)]),
                           lambda: fresh(theirs, dd_seconds, write_dd))
    c_ours, c_dd = medians(rounds, lambda: cold(ours, bench_seconds, read_ours), lambda: cold(theirs, dd_seconds, read_dd))
    h_ours, h_dd = medians(rounds, lambda: bench_seconds(read_ours), lambda: dd_seconds(read_dd))
    for path in (ours, theirs):
        os.remove(path)
    return [
        speed("local write, fsync", size, w_ours, "dd conv=fsync", w_dd, 0.9),
        speed("local read, cold", size, c_ours, "dd", c_dd, 0.9),
        speed("local read, cached", size, h_ours, "dd", h_dd, None),
    ]


def checksum_rows(bench, folder, size, rounds):
    plain, blocks = (os.path.join(folder, name) for name in ("plain", "blocks"))
    options = [[], ["--blocks"], ["--behind"], ["--behind", "--blocks"]]
    w_plain, w_blocks, b_plain, b_blocks = medians(
        rounds, *[lambda path=blocks if "--blocks" in o else plain, o=o: fresh(path, bench_seconds, [bench, "write", path, str(size), *o])
                  for o in options])
    os.remove(plain)
    read = [bench, "read", blocks]
    works = [read, [*read, "--blocks"], [*read, "--ahead"], [*read, "--ahead", "--blocks"]]
    c_plain, c_blocks, a_plain, a_blocks = medians(rounds, *[lambda w=w: cold(blocks, bench_seconds, w) for w in works])
    h_plain, h_blocks = medians(rounds, *[lambda w=w: bench_seconds(w) for w in works[:2]])
    os.remove(blocks)
    rival = "the same without checksum"
    return [
        speed("block stream write, fsync", size, w_blocks, rival, w_plain, 0.9),
        speed("block stream write, fsync, write-behind", size, b_blocks, rival, b_plain, 0.9),
        speed("block stream read, cold", size, c_blocks, rival, c_plain, 0.9),
        speed("block stream read, cold, read-ahead", size, a_blocks, rival, a_plain, 0.9),
        speed("block stream read, cached", size, h_blocks, rival, h_plain, None),
    ]


def decode_rows(bench, folder, size, rounds):
    text = os.path.join(folder, "text")
    bench_seconds([bench, "text", text, str(size)])
    size = os.path.getsize(text)
    rows = []
    for tool, suffix in (("zstd", ".zst"), ("gzip", ".gz")):
        if shutil.which(tool) is None:
            rows.append(run_bench.row(f"{tool} decoding: {tool} is not installed", "MB/s", None))
            continue
        packed = text + suffix
        with open(packed, "wb") as out:
            subprocess.run([tool, "-q", "-c", text], stdout=out, check=True)
        ours, theirs = medians(rounds, lambda: bench_seconds([bench, "decode", packed]),
                               lambda: tool_seconds([tool, "-q", "-dc", packed]))
        rows.append(speed(f"{tool} decoding, cached", size, ours, f"{tool} -dc", theirs, 0.95))
        os.remove(packed)
    os.remove(text)
    return rows


class Hdfs:
    """A cluster of one data node, as long as the `with` block."""

    def __init__(self, folder):
        self.folder = os.path.join(folder, "hdfs")
        self.tool = [sys.executable, os.path.join(ROOT, "tools", "hdfs.py")]

    def __enter__(self):
        up = subprocess.run([*self.tool, "up", "--folder", self.folder, "--owner-pid", str(os.getpid())],
                            capture_output=True, text=True)
        if up.returncode != 0:
            raise RuntimeError(up.stderr.strip().splitlines()[-1] if up.stderr.strip() else "tools/hdfs.py failed")
        cluster = json.loads(up.stdout)
        self.host = f"127.0.0.1:{cluster['http_port']}"
        self.user = cluster["user"]
        return self

    def __exit__(self, *_):
        subprocess.run([*self.tool, "down", "--folder", self.folder], check=False)

    def rest(self, path, op, **parameters):
        query = urllib.parse.urlencode({"op": op, "user.name": self.user, **parameters})
        return f"http://{self.host}/webhdfs/v1{path}?{query}"

    def delete(self, path):
        request = urllib.request.Request(self.rest(path, "DELETE"), method="DELETE")
        urllib.request.urlopen(request).read()

    def curl_put_seconds(self, source, path):
        """Both steps of a CREATE, as the manual of WebHDFS shows them for curl."""
        url = self.rest(path, "CREATE", overwrite="true")
        first = run_quietly(["curl", "-s", "-o", os.devnull, "-w", "%{redirect_url} %{time_total}", "-X", "PUT", url])
        location, took = first.stdout.rsplit(" ", 1)
        return float(took) + curl_seconds(["curl", "-X", "PUT", "-T", source, location])


def hdfs_rows(bench, folder, size, rounds):
    source = os.path.join(folder, "source")
    with open(source, "wb") as f:
        for _ in range(size // MIB):
            f.write(bytes(MIB))
    try:
        with Hdfs(folder) as hdfs:
            def put_ours():
                hdfs.delete("/ours")
                return bench_seconds([bench, "write", f"hdfs://{hdfs.host}/ours", str(size)])

            def put_curl():
                hdfs.delete("/theirs")
                return hdfs.curl_put_seconds(source, "/theirs")

            read = [bench, "read", f"hdfs://{hdfs.host}/ours"]
            get = ["curl", "-L", "-o", os.devnull, hdfs.rest("/ours", "OPEN")]
            put_ours(), put_curl(), curl_seconds(get)  # the data node's code is compiled as it runs
            w_ours, w_curl = medians(rounds, put_ours, put_curl)
            r_one, r_curl, r_many = medians(rounds, lambda: bench_seconds([*read, "--parallel", "1"]),
                                            lambda: curl_seconds(get), lambda: bench_seconds(read))
    except RuntimeError as reason:
        return [run_bench.row(f"HDFS: {reason}", "MB/s", None)]
    finally:
        os.remove(source)
    return [
        speed("HDFS write", size, w_ours, "curl -T", w_curl, 0.95),
        speed("HDFS read, one stream", size, r_one, "curl", r_curl, 0.95),
        speed("HDFS read, parallel ranges", size, r_many, "one curl stream", r_curl, 1.2),
    ]


def run(build_dir, quick):
    bench = os.path.join(build_dir, "src", "store", "store_bench")
    size = (128 if quick else 1024) * MIB
    rounds = 3 if quick else 5
    # A virtual disk answers five times as fast in one second as in the next: its rows need more rounds.
    local_rounds = 3 if quick else 7
    parts = {
        "local": lambda folder: local_rows(bench, folder, size, local_rounds),
        "checksum": lambda folder: checksum_rows(bench, folder, size, local_rounds),
        "decode": lambda folder: decode_rows(bench, folder, min(size, 256 * MIB), rounds),
        "hdfs": lambda folder: hdfs_rows(bench, folder, size, rounds),
    }
    chosen = os.environ.get("STARLING_BENCH_STORE", ",".join(parts)).split(",")
    with tempfile.TemporaryDirectory(prefix="starling-bench-") as folder:
        return [row for name in chosen for row in parts[name](folder)]
