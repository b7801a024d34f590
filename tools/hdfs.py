#!/usr/bin/env python3
"""Starts and stops a real HDFS on 127.0.0.1 for tests: one name node, some data nodes, ports chosen by the kernel.

  tools/hdfs.py up --folder F [--datanodes N] [--owner-pid P]   prints the cluster as JSON (ports, pids, folder)
  tools/hdfs.py kill-datanode --folder F [--index I]            SIGKILL
  tools/hdfs.py start-datanode --folder F [--index I]           the same data, the same ports
  tools/hdfs.py kill-namenode|start-namenode --folder F
  tools/hdfs.py down --folder F                                 ends every process that `up` started
  tools/hdfs.py fetch                                           fills the cache of jars and prints where it is

Needs Java 17 (openjdk-17-jre-headless) and, for an empty cache, Maven (maven). Exit status 3: one of them is missing.
"""
import argparse
import fcntl
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HADOOP_VERSION = "3.4.2"
ARTIFACTS = ("hadoop-hdfs", "hadoop-common", "hadoop-hdfs-client")
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
STORE_PASSWORD = "starling"  # of a key that lives as long as one test run
# Six seconds are usual; a machine that is busy with other tests has taken ten times as long.
READY_SECONDS = 900
REPLY_SECONDS = 60
START_TRIES = 3
EXIT_MISSING = 3


class Missing(Exception):
    """A program that this script cannot do without is not installed."""


class Ended(RuntimeError):
    """A server ended while it was waited for."""


def need(program, package):
    path = shutil.which(program)
    if path is None:
        raise Missing(f"{program} is not installed (Debian package {package})")
    return path


def cache_folder():
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(root, "starling", f"hadoop-{HADOOP_VERSION}")


def pom():
    dependencies = "".join(
        f"<dependency><groupId>org.apache.hadoop</groupId><artifactId>{a}</artifactId>"
        f"<version>{HADOOP_VERSION}</version></dependency>" for a in ARTIFACTS)
    return ('<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
            "<groupId>starling.test</groupId><artifactId>hdfs</artifactId><version>1</version>"
            f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>")


def fetch():
    """Returns the folder of jars; asks Maven for them when the cache has none. One process at a time."""
    jars = cache_folder()
    os.makedirs(os.path.dirname(jars), exist_ok=True)
    with open(jars + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(jars):
            return jars
        maven = need("mvn", "maven")
        work = jars + ".partial"
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        with open(os.path.join(work, "pom.xml"), "w") as f:
            f.write(pom())
        run = subprocess.run(
            [maven, "-q", "-B", "-f", os.path.join(work, "pom.xml"), "dependency:copy-dependencies",
             "-DincludeScope=runtime", f"-DoutputDirectory={os.path.join(work, 'jars')}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode != 0:
            raise RuntimeError(f"maven could not fetch Hadoop {HADOOP_VERSION}:\n{run.stdout[-4000:]}")
        os.rename(os.path.join(work, "jars"), jars)
        shutil.rmtree(work)
    return jars


def hold_ports(count):
    """Sockets on free ports of the kernel's choice. While one is open nobody gets its port by chance, yet a server that
    asks for that very port (with SO_REUSEADDR, as Java does) gets it: the socket never listens."""
    held = []
    for _ in range(count):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        held.append(s)
    return held


def site(path, values):
    properties = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in values.items())
    with open(path, "w") as f:
        f.write(f'<?xml version="1.0"?><configuration>{properties}</configuration>')


def make_key(folder):
    """A self-signed key for 127.0.0.1; returns the PEM file that clients trust."""
    keytool = need("keytool", "openjdk-17-jre-headless")
    store, pem = os.path.join(folder, "key.p12"), os.path.join(folder, "ca.pem")
    common = ["-keystore", store, "-storepass", STORE_PASSWORD, "-storetype", "PKCS12", "-alias", "node"]
    subprocess.run([keytool, "-genkeypair", *common, "-keyalg", "EC", "-validity", "30", "-dname", "CN=127.0.0.1",
                    "-ext", "SAN=ip:127.0.0.1", "-ext", "bc:c"], check=True, capture_output=True)
    subprocess.run([keytool, "-exportcert", *common, "-rfc", "-file", pem], check=True, capture_output=True)
    return store, pem


def write_conf(folder, cluster, node, key_store):
    """One conf folder per process: data nodes differ in ports and data."""
    conf = os.path.join(folder, node["name"], "conf")
    # The processes look for these folders on the class path and exit without them.
    os.makedirs(os.path.join(conf, "webapps", "hdfs"))
    os.makedirs(os.path.join(conf, "webapps", "datanode"))
    data = os.path.join(folder, node["name"])
    site(os.path.join(conf, "core-site.xml"), {
        "fs.defaultFS": f"hdfs://127.0.0.1:{cluster['rpc_port']}",
        "hadoop.tmp.dir": os.path.join(data, "tmp"),
    })
    values = {
        "dfs.namenode.name.dir": f"file://{data}/name",
        "dfs.replication": cluster["replication"],
        "dfs.http.policy": "HTTP_AND_HTTPS",
        "dfs.namenode.http-address": f"127.0.0.1:{cluster['http_port']}",
        "dfs.namenode.https-address": f"127.0.0.1:{cluster['https_port']}",
        "dfs.namenode.fs-limits.min-block-size": 0,
        # Else each small CREATE waits 190-300 ms for its block to be reported.
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": 5,
        # Commands to data nodes, such as to copy a block, travel with the answers to heartbeats. A node that is silent
        # is dead after ten minutes, as in a real cluster: one that is only slow never is.
        "dfs.heartbeat.interval": 1,
        # Every change of the name space would wait for the disk, which is not what is tested. It survives SIGKILL.
        "dfs.namenode.edits.noeditlogchannelflush": "true",
        # Out of safe mode as soon as all blocks are reported, not 30 s later.
        "dfs.namenode.safemode.extension": 0,
        # Space on the test's disk is not what is tested.
        "dfs.datanode.du.reserved": 0,
        "dfs.namenode.resource.du.reserved": 0,
    }
    if "transfer_port" in node:
        values.update({
            "dfs.datanode.data.dir": f"file://{data}/data",
            "dfs.datanode.address": f"127.0.0.1:{node['transfer_port']}",
            "dfs.datanode.http.address": f"127.0.0.1:{node['http_port']}",
            "dfs.datanode.https.address": f"127.0.0.1:{node['https_port']}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{node['ipc_port']}",
            "dfs.datanode.hostname": "127.0.0.1",
        })
    site(os.path.join(conf, "hdfs-site.xml"), values)
    site(os.path.join(conf, "ssl-server.xml"), {
        f"ssl.server.{what}": value for what, value in {
            "keystore.location": key_store, "keystore.password": STORE_PASSWORD, "keystore.keypassword": STORE_PASSWORD,
            "keystore.type": "pkcs12", "truststore.location": key_store, "truststore.password": STORE_PASSWORD,
            "truststore.type": "pkcs12"}.items()})
    return conf


def java_command(folder, node, jars, main, *arguments):
    conf = os.path.join(folder, node["name"], "conf")
    tmp = os.path.join(folder, node["name"], "tmp")
    os.makedirs(tmp, exist_ok=True)
    return [need("java", "openjdk-17-jre-headless"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            f"-Djava.io.tmpdir={tmp}", "--add-opens=java.base/java.lang=ALL-UNNAMED",
            "-cp", f"{conf}:{jars}/*", main, *arguments]


def start(folder, node, jars, main):
    """Starts one server in its own session, so that a signal to the caller's group does not reach it."""
    log = open(os.path.join(folder, node["name"] + ".log"), "ab")
    process = subprocess.Popen(java_command(folder, node, jars, main), stdin=subprocess.DEVNULL, stdout=log,
                               stderr=log, cwd=folder, start_new_session=True)
    node["pid"] = process.pid
    # A pid alone may be another process by the time `down` runs.
    node["started"] = start_time(process.pid)
    return process


def start_time(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return None if fields[0] == "Z" else fields[19]
    except OSError:
        return None


def is_ours(node):
    return node.get("pid") is not None and node.get("started") is not None and start_time(node["pid"]) == node["started"]


def state_path(folder):
    return os.path.join(folder, "cluster.json")


def load(folder):
    with open(state_path(folder)) as f:
        return json.load(f)


def save(folder, cluster):
    with open(state_path(folder) + ".new", "w") as f:
        json.dump(cluster, f, indent=1)
    os.rename(state_path(folder) + ".new", state_path(folder))


def bean(port, name):
    """What a server says of itself, or nothing."""
    url = f"http://127.0.0.1:{port}/jmx?qry=Hadoop:{name}"
    try:
        with urllib.request.urlopen(url, timeout=REPLY_SECONDS) as reply:
            return json.load(reply)["beans"][0]
    except (OSError, ValueError, LookupError):
        return {}


def is_serving(cluster, node):
    """Whether a data node is registered and the name node knows how much space it has: before that it gets no block.

    The node is asked first: the name node's list still shows one that died a moment ago.
    """
    if "RUNNING" not in bean(node["http_port"], "service=DataNode,name=DataNodeInfo").get("BPServiceActorInfo", ""):
        return False
    live = json.loads(bean(cluster["http_port"], "service=NameNode,name=NameNodeInfo").get("LiveNodes", "{}"))
    return any(known.get("xferaddr", "").endswith(f":{node['transfer_port']}") and known.get("capacity", 0) > 0
               for known in live.values())


def wait_ready(folder, cluster):
    """Until the name node is operational, out of safe mode, and has all data nodes that should run."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        for node in [cluster["namenode"], *cluster["datanodes"]]:
            if node.get("wanted") and not is_ours(node):
                raise Ended(f"{node['name']} ended:\n{tail(folder, node)}")
        if bean(cluster["http_port"], "service=NameNode,name=FSNamesystemState").get("FSState") == "Operational":
            if all(is_serving(cluster, node) for node in cluster["datanodes"] if node.get("wanted")):
                return
        time.sleep(0.1)
    raise RuntimeError(f"HDFS was not ready after {READY_SECONDS} s:\n{tail(folder, cluster['namenode'])}")


def tail(folder, node):
    with open(os.path.join(folder, node["name"] + ".log"), errors="replace") as f:
        return f.read()[-3000:]


def end(node, grace_seconds=0.0):
    """Ends the node by its pid and waits until it is gone."""
    if is_ours(node):
        os.kill(node["pid"], signal.SIGTERM if grace_seconds else signal.SIGKILL)
        limit = time.monotonic() + grace_seconds
        while is_ours(node):
            if grace_seconds and time.monotonic() > limit:
                os.kill(node["pid"], signal.SIGKILL)
                grace_seconds = 0.0
            time.sleep(0.02)
    node["wanted"] = False
    node["pid"] = None


def keep(folder, owner_pid):
    """Leaves a child that holds the ports while the cluster is up, and takes it down when its owner is gone, however
    the owner ended."""
    owner_started = start_time(owner_pid) if owner_pid else None
    if os.fork() != 0:
        return
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    while not owner_pid or start_time(owner_pid) == owner_started:
        if not os.path.exists(state_path(folder)):
            os._exit(0)
        time.sleep(1)
    if os.path.exists(state_path(folder)):
        down(folder)
    os._exit(0)


def up(folder, datanodes, replication, owner_pid):
    folder = os.path.abspath(folder)
    if os.path.exists(state_path(folder)):
        raise RuntimeError(f"{folder} already holds a cluster; take it down first")
    need("java", "openjdk-17-jre-headless")
    jars = fetch()
    for attempt in range(START_TRIES):
        held = hold_ports(3 + 4 * datanodes)
        try:
            cluster = start_cluster(folder, jars, datanodes, replication, [s.getsockname()[1] for s in held])
            break
        except Ended:  # java itself is killed where memory is short for a moment
            if attempt == START_TRIES - 1:
                raise
            shutil.rmtree(folder, ignore_errors=True)
            for s in held:
                s.close()
    keep(folder, owner_pid)
    return cluster


def start_cluster(folder, jars, datanodes, replication, ports):
    os.makedirs(folder, exist_ok=True)
    key_store, ca_file = make_key(folder)
    cluster = {"folder": folder, "user": getpass.getuser(), "ca_file": ca_file, "rpc_port": ports[0],
               "http_port": ports[1], "https_port": ports[2], "replication": replication,
               "namenode": {"name": "namenode"}, "datanodes": []}
    for i in range(datanodes):
        p = ports[3 + 4 * i:]
        cluster["datanodes"].append({"name": f"datanode{i}", "transfer_port": p[0], "http_port": p[1],
                                     "https_port": p[2], "ipc_port": p[3]})
    for node in [cluster["namenode"], *cluster["datanodes"]]:
        write_conf(folder, cluster, node, key_store)
    format_run = subprocess.run(
        java_command(folder, cluster["namenode"], jars, NAMENODE, "-format", "-force", "-nonInteractive"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if format_run.returncode != 0:
        raise RuntimeError(f"formatting the name node failed:\n{format_run.stdout[-3000:]}")
    start(folder, cluster["namenode"], jars, NAMENODE)
    for node in cluster["datanodes"]:
        start(folder, node, jars, DATANODE)
    for node in [cluster["namenode"], *cluster["datanodes"]]:
        node["wanted"] = True
    save(folder, cluster)
    try:
        wait_ready(folder, cluster)
    except BaseException:
        down(folder)
        raise
    return cluster


def down(folder):
    cluster = load(folder)
    for node in [*cluster["datanodes"], cluster["namenode"]]:
        end(node)
    os.remove(state_path(folder))


def restart(folder, node_of, main):
    cluster = load(folder)
    node = node_of(cluster)
    if is_ours(node):
        raise RuntimeError(f"{node['name']} runs already")
    start(folder, node, fetch(), main)
    node["wanted"] = True
    save(folder, cluster)
    wait_ready(folder, cluster)


def kill(folder, node_of):
    cluster = load(folder)
    end(node_of(cluster))
    save(folder, cluster)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["up", "down", "kill-datanode", "start-datanode", "kill-namenode",
                                            "start-namenode", "fetch"])
    parser.add_argument("--folder", default="hdfs", help="where the cluster lives")
    parser.add_argument("--datanodes", type=int, default=1)
    parser.add_argument("--replication", type=int, default=1)
    parser.add_argument("--index", type=int, default=0, help="which data node, from 0")
    parser.add_argument("--owner-pid", type=int, default=0, help="take the cluster down when this process has ended")
    arguments = parser.parse_args()
    folder, index = arguments.folder, arguments.index
    try:
        if arguments.command == "up":
            print(json.dumps(up(folder, arguments.datanodes, arguments.replication, arguments.owner_pid)), flush=True)
        elif arguments.command == "down":
            down(folder)
        elif arguments.command == "kill-datanode":
            kill(folder, lambda c: c["datanodes"][index])
        elif arguments.command == "start-datanode":
            restart(folder, lambda c: c["datanodes"][index], DATANODE)
        elif arguments.command == "kill-namenode":
            kill(folder, lambda c: c["namenode"])
        elif arguments.command == "start-namenode":
            restart(folder, lambda c: c["namenode"], NAMENODE)
        else:
            print(fetch())
    except Missing as missing:
        print(f"hdfs.py: {missing}", file=sys.stderr)
        return EXIT_MISSING
    except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
        print(f"hdfs.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
