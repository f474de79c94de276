#!/usr/bin/env python3
"""TLS: real clients, certificates that change while connections are open, and clients that do not
complete the handshake."""
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time
import unittest
import warnings

from certificates import Authority, openssl
from serving import MINILM, PATIENCE, Server, embed, environment, gpuserve, main, run_as_nobody, use_clients, wait_until
from withstand import Load

TEXT = "a dog in the park"
BODY = json.dumps({"inputs": TEXT}).encode()


def read_all(connection):
    got = b""
    try:
        while True:
            part = connection.recv(65536)
            if not part:
                return got
            got += part
    except ConnectionResetError:
        return got


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.ca = Authority(cls.folder)
        cls.ca.sign("one")
        cls.ca.sign("two")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def setUp(self):
        self.server = None

    def tearDown(self):
        if self.server:
            self.server.stop(signal.SIGKILL)

    def start(self, *arguments, name="one", env=None):
        self.ca.put(name)
        self.server = Server(MINILM, "--tls-cert", self.ca.at("server.pem"), "--tls-key",
                             self.ca.at("server.key"), "--open-metrics", *arguments,
                             tls=self.ca.client(), env=env)
        self.assertTrue(self.server.url.startswith("https://"), self.server.url)
        return self.server

    def stop(self, number=signal.SIGTERM):
        server, self.server = self.server, None
        code, err = server.stop(number)
        self.assertEqual(code, 0, err)
        return err

    def plain(self):
        return socket.create_connection((self.server.host, self.server.port), timeout=PATIENCE)

    def secure(self, context=None):
        return (context or self.ca.client()).wrap_socket(self.plain(),
                                                         server_hostname=self.server.host)

    def figure(self, name):
        for line in self.server.get("/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return int(line.split()[1])
        raise AssertionError(name)

    def ask(self, connection, body=BODY, more=b""):
        connection.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s" %
                           (more, len(body), body))

    def answer(self, connection):
        got = b""
        while b"\r\n\r\n" not in got:
            part = connection.recv(65536)
            self.assertTrue(part, got)
            got += part
        head, body = got.split(b"\r\n\r\n", 1)
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < size:
            part = connection.recv(65536)
            self.assertTrue(part)
            body += part
        self.assertTrue(head.startswith(b"HTTP/1.1 200 "), head)
        return json.loads(body[:size])

    def assertWorks(self):
        got = self.server.post("/embed", {"inputs": TEXT}).json()[0]
        want = embed([TEXT])[0]
        self.assertLessEqual(max(abs(a - b) for a, b in zip(got, want)), 1e-6)


class Clients(Case):
    def test_openai(self):
        import httpx
        import openai
        server = self.start("--api-key", "secret")
        with httpx.Client(verify=self.ca.client()) as client:
            got = openai.OpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0,
                                http_client=client).embeddings.create(model="all-MiniLM-L6-v2",
                                                                      input=[TEXT, "b"])
        for item, want in zip(got.data, embed([TEXT, "b"])):
            self.assertLessEqual(max(abs(a - b) for a, b in zip(item.embedding, want)), 1e-6)
        with self.assertRaises(ssl.SSLCertVerificationError):
            self.secure(ssl.create_default_context())
        self.stop()

    def test_versions_and_ciphers(self):
        self.start()
        version = ssl.TLSVersion
        for number, words in ((version.TLSv1_2, "TLSv1.2"), (version.TLSv1_3, "TLSv1.3")):
            with self.secure(self.ca.client(minimum_version=number,
                                            maximum_version=number)) as connection:
                self.assertEqual(connection.version(), words)
                self.assertIsNone(connection.compression())
                self.ask(connection)
                self.answer(connection)
        for name, good in (("ECDHE+AESGCM", True), ("ECDHE+CHACHA20", True),
                           ("ECDHE-ECDSA-AES128-SHA256", False), ("AES128-GCM-SHA256", False)):
            context = self.ca.client(maximum_version=version.TLSv1_2)
            context.set_ciphers(name)
            if good:
                self.secure(context).close()
            else:
                with self.assertRaises(OSError, msg=name):
                    self.secure(context)
        context = self.ca.client()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version, context.maximum_version = version.TLSv1, version.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with self.assertRaises(OSError):
            self.secure(context)
        self.assertGreaterEqual(self.figure("gpuserve_http_tls_failed_handshakes_total"), 3)
        self.stop()

    def test_protocols(self):
        self.start()
        for offered, want in ((["h2", "http/1.1"], "http/1.1"), (["http/1.1"], "http/1.1")):
            context = self.ca.client()
            context.set_alpn_protocols(offered)
            with self.secure(context) as connection:
                self.assertEqual(connection.selected_alpn_protocol(), want)
        context = self.ca.client()
        context.set_alpn_protocols(["h2"])
        with self.assertRaises(OSError):
            self.secure(context)
        self.stop()

    def test_sessions_are_resumed(self):
        self.start()
        context = self.ca.client(maximum_version=ssl.TLSVersion.TLSv1_2)
        with self.secure(context) as first:
            session = first.session
        with context.wrap_socket(self.plain(), server_hostname=self.server.host,
                                 session=session) as second:
            self.assertTrue(second.session_reused)
            self.ask(second)
            self.answer(second)
        self.stop()

    def test_rsa(self):
        self.ca.key("rsa", "RSA", "rsa_keygen_bits:2048")
        self.ca.sign("rsa")
        self.start(name="rsa")
        self.assertWorks()
        self.stop()


class Bytes(Case):
    def test_large_bodies_and_answers(self):
        texts = ["word %d " % i * 8 for i in range(1500)]
        server = self.start("--quiet", "--auto-truncate")
        plain = Server(MINILM, "--quiet", "--auto-truncate")
        try:
            body = json.dumps({"inputs": texts, "truncate": True})
            got = [one.request("POST", "/tokenize", body).body for one in (server, plain)]
            self.assertGreater(len(got[0]), 1 << 20)
            self.assertEqual(*got)
        finally:
            plain.stop()
        self.stop()

    def test_small_records_and_many_requests(self):
        self.start()
        with self.secure() as connection:
            for byte in (b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" %
                         len(BODY) + BODY):
                connection.sendall(bytes([byte]))
            want = self.answer(connection)
            for _ in range(3):  # one record, two requests
                request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
                connection.sendall(request * 2)
                got = b""
                while got.count(b"live\n") < 2:
                    got += connection.recv(65536)
            self.ask(connection)
            self.assertEqual(self.answer(connection), want)
        self.stop()

    def test_the_end_is_said(self):
        """close_notify in both directions: what was read is whole."""
        self.start()
        connection = self.ca.client().wrap_socket(self.plain(), server_hostname=self.server.host,
                                                  suppress_ragged_eofs=False)
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        self.assertTrue(read_all(connection).endswith(b"live\n"))
        connection.close()
        connection = self.ca.client().wrap_socket(self.plain(), server_hostname=self.server.host,
                                                  suppress_ragged_eofs=False)
        connection.sendall(b"BAD\r\n\r\n")
        self.assertTrue(read_all(connection).startswith(b"HTTP/1.1 400 "))
        connection.close()
        connection = self.secure()
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.recv(1000)
        connection.unwrap().close()  # ours is answered by the server's
        self.assertWorks()
        self.stop()

    def test_who_leaves_ends_nothing(self):
        """Resets at each stage, also while megabytes are written: no signal ends the server."""
        self.start("--quiet")
        body = json.dumps({"inputs": ["word " * 100] * 1000}).encode()
        for stage in range(3):
            connection = self.plain()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if stage > 0:
                connection = self.ca.client().wrap_socket(connection,
                                                          server_hostname=self.server.host)
            if stage > 1:
                connection.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
                                   b"\r\n%s" % (len(body), body))
                connection.recv(1000)
            connection.close()
        self.assertWorks()
        wait_until(lambda: self.figure("gpuserve_http_connections") == 1)
        self.stop()

    def test_drain_answers_what_was_accepted(self):
        server = self.start("--quiet")
        load = Load(server)
        wait_until(lambda: len(load.answers) > 5)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(timeout=PATIENCE)
        load.stop()
        self.assertEqual(load.failures, [])
        self.assertEqual({status for status, _ in load.answers}, {200})
        self.stop()


class Handshakes(Case):
    def test_plain_http(self):
        self.start()
        for first in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST /embed HTTP/1.1\r\n"):
            with self.plain() as connection:
                connection.sendall(first)
                got = read_all(connection)
                self.assertTrue(got.startswith(b"HTTP/1.1 400 "), got)
                self.assertIn(b"this port requires TLS: use https://", got)
        self.stop()

    def test_garbage(self):
        self.start("--verbose")
        for garbage in (b"\x16", b"\x16\x03\x01", b"\x16\x03\x01\xff\xff" + b"a" * 70000,
                        b"\x16\x03\x01\x00\x05" + b"\x01\xff\xff\xff\x03" + b"b" * 70000,
                        b"\x16\x03\x01\x00\x00" * 50, os.urandom(3000), b"\x80\x2e\x01\x00\x02",
                        b"\x15\x03\x01\x00\x02\x02\x28"):
            with self.plain() as connection:
                try:
                    connection.sendall(garbage)
                    connection.shutdown(socket.SHUT_WR)
                except OSError:
                    pass  # it has closed before we are done
                self.assertNotIn(b"200", read_all(connection)[:20])
        self.assertWorks()
        self.assertIn("TLS handshake failed", self.stop())

    def test_slow_clients_do_not_slow_others(self):
        """Absolute deadline, whatever trickles in; others are served meanwhile."""
        self.start("--header-timeout", "1", "--quiet")
        with self.secure() as connection:  # a real beginning, to be sent in part
            connection.close()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = self.ca.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with self.assertRaises(ssl.SSLWantReadError):
            client.do_handshake()
        hello = outgoing.read()
        slow = [self.plain() for _ in range(100)]
        for i, connection in enumerate(slow):
            connection.sendall(hello[:i % 50])
        self.assertWorks()
        open_ones, sent = set(slow), 50
        until = time.monotonic() + PATIENCE
        while open_ones and time.monotonic() < until:
            for connection in list(open_ones):
                try:
                    if sent < len(hello) - 1:
                        connection.sendall(hello[sent:sent + 1])
                    connection.settimeout(0.01)
                    if not connection.recv(1000):
                        open_ones.remove(connection)
                except TimeoutError:
                    pass
                except OSError:
                    open_ones.remove(connection)
            sent += 1
        self.assertEqual(open_ones, set())
        self.assertWorks()
        for connection in slow:
            connection.close()
        self.stop()

    def test_memory_of_a_connection_is_bounded(self):
        server = self.start("--quiet", "--idle-timeout", "600", "--header-timeout", "600")

        def resident():
            with open("/proc/%d/statm" % server.process.pid, encoding="ascii") as file:
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def some(n):
            return [self.secure() for _ in range(n)]

        kept = some(50)
        before, n = resident(), 150
        kept += some(n)
        for connection in kept[50:]:
            self.ask(connection)
            self.answer(connection)
        each = (resident() - before) / n
        self.assertLess(each, 160 << 10, each)
        for connection in kept:
            connection.close()
        wait_until(lambda: self.figure("gpuserve_http_connections") == 1)
        self.stop()

    def test_renegotiation_is_refused(self):
        self.start()
        done = subprocess.Popen(
            ["openssl", "s_client", "-connect", "127.0.0.1:%d" % self.server.port, "-tls1_2",
             "-CAfile", self.ca.at("ca.pem")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True)
        seen = ""
        while "Verify return code" not in seen:
            line = done.stdout.readline()
            self.assertTrue(line, seen)
            seen += line
        self.assertIn("Verify return code: 0", seen)
        done.stdin.write("R\n")
        done.stdin.flush()
        rest, _ = done.communicate(timeout=PATIENCE)
        self.assertIn("no renegotiation", rest.lower())
        self.assertWorks()
        self.stop()


class Changes(Case):
    def shown(self):
        with self.secure() as connection:
            return dict(entry[0] for entry in connection.getpeercert()["subject"])["commonName"]

    def test_new_files_are_taken_up(self):
        """By themselves, and at SIGHUP; connections that are open stay."""
        self.start("--verbose")
        old = self.secure()
        self.ask(old)
        want = self.answer(old)
        self.assertEqual(self.shown(), "one")
        self.ca.put("two")
        wait_until(lambda: self.shown() == "two")
        self.ca.put("one")
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.shown() == "one")
        self.ask(old)
        self.assertEqual(self.answer(old), want)
        old.close()
        self.assertIn("the certificate changed: the server uses the new one", self.stop())

    def test_bad_files_change_nothing(self):
        self.start()
        shutil.copy(self.ca.at("two.key"), self.ca.at("server.key"))  # another's key
        failed = self.figure("gpuserve_http_failed_reloads_total")
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.figure("gpuserve_http_failed_reloads_total") == failed + 1)
        self.assertEqual(self.shown(), "one")
        os.unlink(self.ca.at("server.pem"))
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.figure("gpuserve_http_failed_reloads_total") == failed + 2)
        self.assertEqual(self.shown(), "one")
        self.ca.put("two")
        wait_until(lambda: self.shown() == "two")
        err = self.stop()
        self.assertIn("server.key does not match the first certificate", err)
        self.assertIn("server.pem: No such file", err)

    def test_links_as_certbot_and_kubernetes_make_them(self):
        folder = self.ca.at("links")
        for name in ("live", "archive"):
            os.makedirs(os.path.join(folder, name))

        def renew(number, name):
            for kind in ("pem", "key"):
                target = os.path.join(folder, "archive", "%s%d" % (kind, number))
                shutil.copy(self.ca.at(name + "." + kind), target)
                link = os.path.join(folder, "live", "tls." + kind)
                os.symlink(target, link + ".new")
                os.rename(link + ".new", link)

        renew(1, "one")
        self.server = Server(MINILM, "--tls-cert", os.path.join(folder, "live", "tls.pem"),
                             "--tls-key", os.path.join(folder, "live", "tls.key"), "--device", "cpu",
                             tls=self.ca.client())
        self.assertEqual(self.shown(), "one")
        renew(2, "two")
        wait_until(lambda: self.shown() == "two")
        self.assertNotIn("keeps the old certificate", self.stop())

    def test_under_load_no_request_is_lost(self):
        server = self.start("--quiet")
        load = Load(server)
        for i in range(6):
            self.ca.put(("two", "one")[i % 2])
            before = self.figure("gpuserve_http_reloads_total")
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: self.figure("gpuserve_http_reloads_total") > before)
        load.stop()
        self.assertEqual(load.failures, [])
        self.assertEqual({status for status, _ in load.answers}, {200})
        self.stop()


class Files(Case):
    def joined(self, name, parts):
        with open(self.ca.at(name), "wb") as target:
            for part in parts:
                with open(part, "rb") as source:
                    target.write(source.read())
        return self.ca.at(name)

    def refused(self, words, *arguments):
        """By --check-config and by the start, with the same words."""
        for check in ((), ("--check-config",)):
            done = gpuserve("serve", MINILM, "--port", "0", *arguments, *check)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(words, done.err)
            self.assertNotIn("PRIVATE", done.out + done.err.replace("BEGIN PRIVATE KEY", ""))
        return done.err

    def test_what_cannot_be_used(self):
        one, key = self.ca.at("one.pem"), self.ca.at("one.key")
        empty, locked, broken = (self.ca.at(name) for name in ("empty", "locked", "broken"))
        with open(empty, "wb"):
            pass
        openssl("pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", locked)
        with open(one, encoding="ascii") as source, open(broken, "w", encoding="ascii") as target:
            target.write(source.read().replace("M", "N", 3))
        missing = self.ca.at("missing.pem")
        self.refused(missing + ": No such file", "--tls-cert", missing, "--tls-key", key)
        self.refused(missing + ": No such file", "--tls-cert", one, "--tls-key", missing)
        self.refused(self.folder + ": Is a directory", "--tls-cert", self.folder)
        self.refused("has no certificate", "--tls-cert", empty, "--tls-key", key)
        self.refused("has no certificate", "--tls-cert", key, "--tls-key", key)
        self.refused(broken, "--tls-cert", broken, "--tls-key", key)
        self.refused("has no private key", "--tls-cert", one)
        self.refused("has no private key", "--tls-cert", one, "--tls-key", one)
        self.refused("does not match the first certificate", "--tls-cert", one, "--tls-key",
                     self.ca.at("two.key"))
        err = self.refused("the key is encrypted", "--tls-cert", one, "--tls-key", locked)
        self.assertIn("openssl pkey -in %s" % locked, err)
        self.refused("needs a certificate", "--tls-key", key)
        self.refused("does not support TLS", "--tls-cert", one, "--tls-key", key, "--unix",
                     self.ca.at("socket"))
        self.ca.key("weak", "RSA", "rsa_keygen_bits:1024")
        weak = self.ca.sign("weak")[0]
        self.refused("too small", "--tls-cert", weak, "--tls-key", self.ca.at("weak.key"))
        for words, *parts in (("certificate 2: ca key too small", one, weak),
                              ("certificate 3: ", one, self.ca.at("ca.pem"), broken),
                              ("certificate 18: too many", one, *[self.ca.at("ca.pem")] * 17)):
            self.refused(words, "--tls-cert", self.joined("chain", parts), "--tls-key", key)
        with open(self.ca.at("huge"), "wb") as file:
            file.truncate((1 << 20) + 1)
        self.refused("exceeds 1048576 bytes", "--tls-cert", self.ca.at("huge"), "--tls-key", key)

    def test_a_system_that_has_none_of_it(self):
        """OpenSSL's own configuration may leave it without any algorithm."""
        path = self.ca.at("openssl.cnf")
        with open(path, "w", encoding="ascii") as file:
            file.write("openssl_conf = a\n[a]\nproviders = b\n[b]\nnull = c\n[c]\nactivate = 1\n")
        done = gpuserve("serve", MINILM, "--check-config", "--tls-cert", self.ca.at("one.pem"),
                        "--tls-key", self.ca.at("one.key"), env=environment(OPENSSL_CONF=path))
        self.assertEqual(done.returncode, 1, done.err)
        self.assertIn("TLS cannot be set up", done.err)

    def test_what_may_not_be_read(self):
        name = self.ca.at("closed")
        shutil.copy(self.ca.at("one.key"), name)
        os.chmod(name, 0)
        os.chmod(self.folder, 0o755)
        done = run_as_nobody("serve", "model", "--check-config", "--tls-cert", self.ca.at("one.pem"), "--tls-key", name)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(name + ": Permission denied", done.stderr)

    def test_configuration(self):
        """One file for both, from the environment and from --config."""
        both = self.joined("both.pem", [self.ca.at(name) for name in ("one.key", "one.pem", "ca.pem")])
        config = self.ca.at("config.json")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"models": [MINILM], "tls-cert": both}, file)
        for arguments, env in (((MINILM,), environment(GPUSERVE_TLS_CERT=both)),
                               (("--config", config), None)):
            self.server = Server(*arguments, tls=self.ca.client(), env=env)
            self.assertWorks()
            self.stop()
        done = gpuserve("serve", "--config", config, "--check-config")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(json.loads(done.out)["tls-cert"], both)

    def test_an_old_certificate_is_told_of(self):
        self.ca.sign_ended("old")
        self.ca.put("old")
        self.server = Server(MINILM, "--tls-cert", self.ca.at("server.pem"), "--tls-key",
                             self.ca.at("server.key"))
        self.assertIn("the certificate expired", self.stop())

    def test_the_watchdog_asks_by_tls(self):
        path = self.ca.at("notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.settimeout(PATIENCE)
            systemd.bind(path)
            self.start(env=environment(NOTIFY_SOCKET=path, WATCHDOG_USEC="2000000"))
            got = [systemd.recv(4096) for _ in range(3)]
        self.assertEqual(got, [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"])
        os.unlink(path)
        self.stop()


if __name__ == "__main__":
    use_clients()
    main(__name__)
