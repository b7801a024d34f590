"""Tests of tools/hdfs.py that need no Java; src/store/hdfs starts and kills real servers with it."""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import hdfs  # noqa: E402


class HdfsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_tool(self, *arguments, path=None):
        environment = {**os.environ, "XDG_CACHE_HOME": self.folder}
        if path is not None:
            environment["PATH"] = path
        return subprocess.run([sys.executable, hdfs.__file__, *arguments], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)

    def test_a_held_port_goes_to_the_server_that_asks_for_it_and_to_nobody_by_chance(self):
        held = hdfs.hold_ports(3)
        self.addCleanup(lambda: [s.close() for s in held])
        ports = [s.getsockname()[1] for s in held]
        self.assertEqual(len(set(ports)), 3)
        with socket.socket() as client, self.assertRaises(ConnectionRefusedError):
            client.connect(("127.0.0.1", ports[0]))
        # Twice: a server that died gets its port again.
        for _ in range(2):
            with socket.socket() as server:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                server.bind(("127.0.0.1", ports[0]))
                server.listen()
                with socket.socket() as client:
                    client.connect(("127.0.0.1", ports[0]))
        with socket.socket() as other, self.assertRaises(OSError):
            other.bind(("127.0.0.1", ports[1]))

    def test_a_process_is_known_by_its_start_and_not_by_its_number_alone(self):
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        node = {"pid": child.pid, "started": hdfs.start_time(child.pid)}
        self.assertTrue(hdfs.is_ours(node))
        self.assertFalse(hdfs.is_ours({**node, "started": "1"}))
        child.stdin.close()
        child.wait(timeout=60)
        self.assertFalse(hdfs.is_ours(node))
        self.assertFalse(hdfs.is_ours({"pid": None}))

    def test_ending_a_node_waits_until_it_is_gone(self):
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
        self.addCleanup(child.stdin.close)
        node = {"pid": child.pid, "started": hdfs.start_time(child.pid), "wanted": True}
        hdfs.end(node)
        self.assertEqual((node["wanted"], node["pid"]), (False, None))
        self.assertEqual(child.wait(timeout=60), -9)

    def test_without_java_the_exit_status_tells_it_and_the_package_is_named(self):
        run = self.run_tool("up", "--folder", os.path.join(self.folder, "cluster"), path=self.folder)
        self.assertEqual(run.returncode, hdfs.EXIT_MISSING)
        self.assertIn("openjdk-17-jre-headless", run.stderr)

    def test_without_maven_an_empty_cache_is_told_the_same_way(self):
        run = self.run_tool("fetch", path=self.folder)
        self.assertEqual(run.returncode, hdfs.EXIT_MISSING)
        self.assertIn("maven", run.stderr)

    def test_a_folder_that_holds_a_cluster_is_not_taken(self):
        hdfs.save(self.folder, {"namenode": {}, "datanodes": []})
        run = self.run_tool("up", "--folder", self.folder)
        self.assertEqual(run.returncode, 1)
        self.assertIn("already holds a cluster", run.stderr)

    def test_a_name_that_is_taken_down_twice_is_an_error(self):
        hdfs.save(self.folder, {"namenode": {"name": "namenode"}, "datanodes": []})
        self.assertEqual(self.run_tool("down", "--folder", self.folder).returncode, 0)
        self.assertEqual(self.run_tool("down", "--folder", self.folder).returncode, 1)


if __name__ == "__main__":
    unittest.main()
