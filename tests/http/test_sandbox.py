"""After loading, the server drops rights it does not need (T15): no other program, no ptrace."""
import glob
import json
import os
import signal
import subprocess
import time
import unittest

from serving import MINILM, Server, main


def seccomp(server):
    """The modes of all threads: 2 is a filter."""
    modes = set()
    for path in glob.glob("/proc/%d/task/*/status" % server.process.pid):
        with open(path, encoding="ascii") as file:
            modes |= {line.split()[1] for line in file if line.startswith("Seccomp:")}
    return modes


class Sandbox(unittest.TestCase):
    def test_what_is_refused(self):
        done = subprocess.run([os.environ["GPUSERVE_SANDBOXED"]], capture_output=True, text=True,
                              check=True)
        for thread in ("older", "own"):
            for call in ("execve", "execveat", "ptrace", "process_vm_readv"):
                self.assertIn("%s %s Operation not permitted" % (thread, call), done.stdout)
            self.assertIn(thread + " open works", done.stdout)

    def test_the_server_goes_on(self):
        server = Server(MINILM)
        self.assertEqual(seccomp(server), {"2"})
        before = server.post("/embed", {"inputs": "a dog"}).body
        server.process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 20
        while "gpuserve_http_reloads_total 1\n" not in server.get("/metrics").body.decode():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        self.assertEqual(server.post("/embed", {"inputs": "a dog"}).body, before)
        self.assertEqual(len(json.loads(before)[0]), 384)
        self.assertEqual(seccomp(server), {"2"})
        self.assertEqual(server.stop()[0], 0)

    def test_without(self):
        server = Server(MINILM, "--no-sandbox")
        self.assertEqual(seccomp(server), {"0"})
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
