"""Messages to systemd (sd_notify), and the unit file."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from serving import HERE, MINILM, PATIENCE, Server, environment, main

UNIT = os.path.join(os.path.dirname(os.path.dirname(HERE)), "deploy", "systemd", "gpuserve.service")


class Notify(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(PATIENCE)

    def tearDown(self):
        self.socket.close()
        shutil.rmtree(self.folder)

    def next(self, skip="WATCHDOG=1"):
        while True:
            got = self.socket.recv(4096).decode()
            if got != skip:
                return got

    def run_through(self, address):
        server = Server(MINILM, env=environment(NOTIFY_SOCKET=address, WATCHDOG_USEC="400000"))
        self.assertEqual(self.next(), "READY=1")
        for _ in range(3):
            self.assertEqual(self.next(skip=""), "WATCHDOG=1")
        server.process.send_signal(signal.SIGHUP)
        self.assertRegex(self.next(), r"^RELOADING=1\nMONOTONIC_USEC=\d+$")
        self.assertEqual(self.next(), "READY=1")
        code, err = server.stop()
        self.assertEqual((code, "NOTIFY" in err), (0, False))
        self.assertEqual(self.next(), "STOPPING=1")

    def test_a_path(self):
        path = os.path.join(self.folder, "notify")
        self.socket.bind(path)
        self.run_through(path)

    def test_a_name(self):
        self.socket.bind("\0gpuserve-%d" % os.getpid())
        self.run_through("@gpuserve-%d" % os.getpid())

    def test_without_a_listener(self):
        server = Server(MINILM, env=environment(NOTIFY_SOCKET=self.folder + "/none"))
        self.assertEqual(server.get("/health").status, 200)
        self.assertEqual(server.stop()[0], 0)

    def test_a_watchdog_of_another_process(self):
        path = os.path.join(self.folder, "notify")
        self.socket.bind(path)
        server = Server(MINILM, env=environment(NOTIFY_SOCKET=path, WATCHDOG_USEC="200000",
                                                WATCHDOG_PID="1"))
        self.assertEqual(self.next(), "READY=1")
        self.socket.settimeout(0.6)
        with self.assertRaises(OSError):
            self.next(skip="")
        self.assertEqual(server.stop()[0], 0)


class Unit(unittest.TestCase):
    @unittest.skipUnless(shutil.which("systemd-analyze"), "no systemd-analyze")
    def test_unit(self):
        folder = tempfile.mkdtemp()
        try:
            with open(UNIT, encoding="utf-8") as file:
                text = file.read()
            path = os.path.join(folder, "gpuserve.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("/usr/bin/gpuserve", os.environ["GPUSERVE"]))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], text=True,
                                  capture_output=True, check=False)
            told = [line for line in (done.stdout + done.stderr).splitlines()
                    if "gpuserve.service" in line]
            self.assertEqual((done.returncode, told), (0, []), done.stderr)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main(__name__)
