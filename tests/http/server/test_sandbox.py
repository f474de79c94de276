"""After loading, the server drops rights it does not need (T15): no other program, no ptrace."""
import glob
import json
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import unittest

from serving import MINILM, PATIENCE, Server, environment, figure, main, wait_until


def seccomp(server):
    """The modes of all threads: 2 is a filter."""
    modes = set()
    for path in glob.glob("/proc/%d/task/*/status" % server.process.pid):
        with open(path, encoding="ascii") as file:
            modes |= {line.split()[1] for line in file if line.startswith("Seccomp:")}
    return modes


class Sandbox(unittest.TestCase):
    def tried(self, refused, allowed, *arguments):
        done = subprocess.run([os.environ["GPUSERVE_SANDBOXED"], *arguments], capture_output=True, text=True,
                              check=True)
        for thread in ("older", "own"):
            for call in refused:
                self.assertIn("%s %s Operation not permitted\n" % (thread, call), done.stdout)
            for call in allowed:
                self.assertIn("%s %s works\n" % (thread, call), done.stdout)

    def test_what_is_refused(self):
        calls = ("execve", "execveat", "ptrace", "process_vm_readv", "perf_event_open", "io_uring_setup",
                 "pidfd_getfd", "AF_NETLINK")
        self.tried((*calls, "AF_INET", "AF_INET6"), ("AF_UNIX", "socketpair", "open"))
        self.tried(calls, ("AF_INET", "AF_INET6", "AF_UNIX", "socketpair", "open"), "network")

    def test_all_that_changes_goes_on(self):
        """Under all of it: load and unload, new keys, a new certificate, a log made anew; and no more is
        written than that log."""
        with tempfile.TemporaryDirectory() as folder:
            self.under_all_of_it(folder)

    def under_all_of_it(self, folder):
        def at(name):
            return os.path.join(folder, name)

        def write(name, text):
            with open(at(name + ".new"), "w", encoding="ascii") as file:
                file.write(text)
            os.rename(at(name + ".new"), at(name))

        def certificate(name):
            done = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                                   "-days", "1", "-subj", "/CN=" + name, "-keyout", at("key.new"), "-out", at("cert.new")],
                                  capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            os.rename(at("key.new"), at("key"))
            os.rename(at("cert.new"), at("cert"))

        def shown():
            return ssl.get_server_certificate((server.host, server.port))

        write("keys", "one\n")
        certificate("one")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        server = Server(MINILM, "--device", "cpu", "--model-control", "--open-metrics", "--api-key-file", at("keys"),
                        "--tls-cert", at("cert"), "--tls-key", at("key"), "--access-log", at("log"), tls=context)
        self.assertEqual(seccomp(server), {"2"})
        first = shown()
        one, two = {"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}
        before = server.post("/embed", {"inputs": "a dog"}, one).body
        for what in ("unload", "load"):
            reply = server.post("/v2/repository/models/all-MiniLM-L6-v2/" + what, {}, one)
            self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(server.post("/embed", {"inputs": "a dog"}, one).body, before)
        write("keys", "two\n")
        certificate("two")
        os.rename(at("log"), at("log.1"))
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: figure(server, "gpuserve_http_reloads_total") == 1)
        self.assertEqual(server.post("/embed", {"inputs": "a dog"}, one).status, 401)
        self.assertEqual(server.post("/embed", {"inputs": "a dog"}, two).body, before)
        self.assertNotEqual(shown(), first)
        self.assertEqual(seccomp(server), {"2"})
        code, err = server.stop()
        self.assertEqual((code, "the server keeps" in err), (0, False), err)
        with open(at("log"), encoding="utf-8") as file:
            self.assertIn('"status":401', file.read())
        self.assertEqual(sorted(os.listdir(folder)), ["cert", "key", "keys", "log", "log.1"])

    def test_the_watchdog_goes_on(self):
        """It asks over the port."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(folder + "/notify")
            told.settimeout(PATIENCE)
            server = Server(MINILM, env=environment(NOTIFY_SOCKET=folder + "/notify", WATCHDOG_USEC="200000"))
            self.assertEqual([told.recv(100) for _ in range(3)], [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"])
            self.assertEqual(seccomp(server), {"2"})
            self.assertEqual(server.stop()[0], 0)

    def test_the_server_goes_on(self):
        server = Server(MINILM)
        self.assertEqual(seccomp(server), {"2"})
        before = server.post("/embed", {"inputs": "a dog"}).body
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: figure(server, "gpuserve_http_reloads_total") == 1)
        self.assertEqual(server.post("/embed", {"inputs": "a dog"}).body, before)
        self.assertEqual(len(json.loads(before)[0]), 384)
        self.assertEqual(seccomp(server), {"2"})
        self.assertEqual(server.stop()[0], 0)

    def test_threads_keep_their_names(self):
        """For `top -H` and profilers: naming another thread would take a file of /proc."""
        server = Server(MINILM)

        def names():
            for path in glob.glob("/proc/%d/task/*/comm" % server.process.pid):
                with open(path, encoding="ascii") as file:
                    yield file.read().strip()

        # a thread names itself once it runs
        wait_until(lambda: {"gpuserve-http", "gpuserve-worker", "gpuserve-0"} <= set(names()))
        self.assertEqual(server.stop()[0], 0)

    def test_without(self):
        server = Server(MINILM, "--no-sandbox")
        self.assertEqual(seccomp(server), {"0"})
        self.assertEqual(server.stop()[0], 0)


if __name__ == "__main__":
    main(__name__)
