#!/usr/bin/env python3
"""Client certificates: a client without one of the right CA is refused in the handshake, for every path."""
import json
import os
import shutil
import signal
import socket
import ssl
import time

import test_tls
from serving import MINILM, PATIENCE, Server, environment, gpuserve, main, use_clients, wait_until
from test_tls import TEXT, Authority, openssl

SERVER_ONLY = "extendedKeyUsage=serverAuth\n"
FOR_CA = "subjectKeyIdentifier=hash\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n"
NO_LISTS = "subjectKeyIdentifier=hash\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n"


class Signer(Authority):
    """A CA, and what it signs with any extensions."""

    def issue(self, name, extensions="extendedKeyUsage=clientAuth\n", by="ca"):
        self.key(name)
        with open(self.at("extensions"), "w", encoding="ascii") as file:
            file.write(extensions)
        request = openssl("req", "-new", "-key", self.at(name + ".key"), "-subj", "/CN=" + name)
        openssl("x509", "-req", "-CA", self.at(by + ".pem"), "-CAkey", self.at(by + ".key"), "-days", "30",
                "-CAcreateserial", "-extfile", self.at("extensions"), "-out", self.at(name + ".pem"), stdin=request)

    def join(self, target, *names):
        """Takes the place of the file in one step, as renewals do."""
        with open(self.at(target + ".new"), "wb") as file:
            for name in names:
                with open(self.at(name), "rb") as source:
                    file.write(source.read())
        os.rename(self.at(target + ".new"), self.at(target))
        return self.at(target)

    def self_signed(self, name):
        self.key(name)
        openssl("req", "-x509", "-key", self.at(name + ".key"), "-out", self.at(name + ".pem"), "-days", "30",
                "-subj", "/CN=" + name, "-addext", "basicConstraints=critical,CA:FALSE")

    def list(self, name, *revoked, by="ca", times=("-crldays", "30"), extended=True):
        """The list of a CA, by OpenSSL's own program; what is extended tells which key of its has signed it."""
        with open(self.at("config"), "w", encoding="ascii") as file:
            file.write("[ca]\ndefault_ca=one\n[one]\ndatabase=%s\ndefault_md=sha256\n" % self.at("index"))
            file.write("crl_extensions=two\n[two]\nauthorityKeyIdentifier=keyid:always\n" if extended else "")
        with open(self.at("index"), "w", encoding="ascii"):
            pass
        run = ("ca", "-config", self.at("config"), "-cert", self.at(by + ".pem"), "-keyfile", self.at(by + ".key"))
        for certificate in revoked:
            openssl(*run, "-revoke", self.at(certificate + ".pem"))
        openssl(*run, "-gencrl", *times, "-out", self.at(name))
        return self.at(name)


class Case(test_tls.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.users = cls.signer("users")
        cls.others = cls.signer("others")
        cls.users.issue("anna")
        cls.others.issue("berta")

    @classmethod
    def signer(cls, name):
        folder = os.path.join(cls.folder, name)
        os.mkdir(folder)
        return Signer(folder)

    def begin(self, *arguments, ca=None, env=None):
        self.ca.put("one")
        self.server = Server(MINILM, "--tls-cert", self.ca.at("server.pem"), "--tls-key", self.ca.at("server.key"),
                             "--tls-client-ca", ca or self.users.at("ca.pem"), *arguments, tls=self.client(self.users, "anna"),
                             env=env)

    def client(self, signer, name, **changes):
        """Who trusts the server's CA, with a certificate or, without a name, none."""
        context = self.ca.client(**changes)
        if name:
            context.load_cert_chain(signer.at(name + ".pem"), signer.at(name + ".key"))
        return context

    def answer_to(self, context, path=b"/livez"):
        """The bytes of the answer; none: it was refused before."""
        try:
            with self.secure(context) as connection:
                connection.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path)
                got = b""
                while part := connection.recv(65536):
                    got += part
                return got
        except OSError:  # an alert, or the connection is gone before we read it
            return b""

    def assertLetIn(self, context):
        self.assertTrue(self.answer_to(context).startswith(b"HTTP/1.1 200 "))

    def assertRefused(self, context):
        self.assertEqual(self.answer_to(context), b"")


class Clients(Case):
    def test_only_those_with_a_certificate_by_the_ca(self):
        users = self.users
        users.sign_ended("ended", "extendedKeyUsage=clientAuth\n")
        users.issue("server", SERVER_ONLY)
        users.issue("plain", "basicConstraints=CA:FALSE\n")
        users.self_signed("own")
        users.issue("middle", FOR_CA)
        users.issue("carla", by="middle")
        shutil.copy(users.at("carla.key"), users.at("chain.key"))
        users.join("chain.pem", "carla.pem", "middle.pem")
        users.issue("no_ca", "basicConstraints=CA:FALSE\n")
        users.issue("forged", by="no_ca")
        shutil.copy(users.at("forged.key"), users.at("forgery.key"))
        users.join("forgery.pem", "forged.pem", "no_ca.pem")
        self.begin("--verbose", "--access-log", self.ca.at("log"))
        version = ssl.TLSVersion
        n_refused = 0
        for number in (version.TLSv1_2, version.TLSv1_3):
            only = {"minimum_version": number, "maximum_version": number}
            for signer, name, good in ((users, "anna", True), (users, "plain", True), (users, "chain", True), (users, None, False),
                                       (self.others, "berta", False), (users, "own", False), (users, "ended", False),
                                       (users, "server", False), (users, "carla", False), (users, "forgery", False)):
                answer = self.answer_to(self.client(signer, name, **only))
                self.assertEqual(answer[:13], b"HTTP/1.1 200 " if good else b"", (number, name))
                n_refused += not good
        self.assertWorks()
        metrics = self.server.get("/metrics").body.decode()
        self.assertIn("\ngpuserve_http_tls_failed_handshakes_total %d\n" % n_refused, metrics)
        err = self.stop()
        self.assertIn("TLS handshake failed: peer did not return a certificate", err)
        self.assertIn("TLS handshake failed: certificate verify failed", err)
        with open(self.ca.at("log"), encoding="utf-8") as log:  # 3 of each version, ours, /metrics
            self.assertEqual(len(log.readlines()), 8)

    def test_health_is_no_exception(self):
        self.begin()
        for path in (b"/livez", b"/readyz", b"/health", b"/ping", b"/v2/health/ready"):
            self.assertEqual(self.answer_to(self.client(None, None), path), b"")
            self.assertTrue(self.answer_to(self.client(self.users, "anna"), path).startswith(b"HTTP/1.1 200 "))
        self.stop()

    def test_an_intermediate_ca_alone(self):
        """Is trusted for its own clients, not for those of the root above it."""
        self.users.issue("half", FOR_CA)
        self.users.issue("dora", by="half")
        self.begin(ca=self.users.at("half.pem"))
        self.assertLetIn(self.client(self.users, "dora"))
        self.assertRefused(self.client(self.users, "anna"))
        self.stop()

    def test_sessions_are_not_resumed(self):
        """Or a certificate would be good beyond its end."""
        self.begin()
        context = self.client(self.users, "anna", maximum_version=ssl.TLSVersion.TLSv1_2)
        with self.secure(context) as first:
            session = first.session
        with context.wrap_socket(self.plain(), server_hostname=self.server.host, session=session) as second:
            self.assertFalse(second.session_reused)
        context = self.client(self.users, "anna")
        with self.secure(context) as first:
            first.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            first.recv(1000)
            self.assertFalse(first.session and first.session.has_ticket)
        self.stop()

    def test_openai(self):
        import httpx
        import openai
        self.begin()
        for name, good in (("anna", True), (None, False)):
            with httpx.Client(verify=self.client(self.users, name)) as client:
                embeddings = openai.OpenAI(base_url=self.server.url + "/v1", api_key="-", max_retries=0, http_client=client).embeddings
                if good:
                    self.assertEqual(len(embeddings.create(model="all-MiniLM-L6-v2", input=TEXT).data[0].embedding), 384)
                else:
                    with self.assertRaises(openai.APIConnectionError):
                        embeddings.create(model="all-MiniLM-L6-v2", input=TEXT)
        self.stop()

    def test_other_addresses_need_no_key_then(self):
        one = ("--tls-cert", self.ca.at("one.pem"), "--tls-key", self.ca.at("one.key"))
        for more, good in (((), False), (("--tls-client-ca", self.users.at("ca.pem")), True)):
            done = gpuserve("serve", MINILM, "--check-config", "--host", "0.0.0.0", *one, *more)
            self.assertEqual(done.returncode == 0, good, done.err)
            self.assertTrue(good or "--tls-client-ca" in done.err, done.err)

    def test_the_watchdog_has_none(self):
        """The server knows itself: it answers, and no handshake fails; no other client connects without one meanwhile."""
        path = self.ca.at("notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.settimeout(PATIENCE)
            systemd.bind(path)
            self.begin("--verbose", "--access-log", self.ca.at("beats"), env=environment(NOTIFY_SOCKET=path, WATCHDOG_USEC="2000000"))
            got = [systemd.recv(4096) for _ in range(3)]
            self.assertEqual(got, [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"])
            self.assertIn(b"\ngpuserve_http_tls_failed_handshakes_total 0\n", self.server.get("/metrics").body)
            self.assertRefused(self.client(None, None))
        os.unlink(path)
        self.assertEqual(self.stop().count("handshake failed"), 1)
        with open(self.ca.at("beats"), encoding="utf-8") as log:
            beats = [line for line in map(json.loads, log) if line["path"] == "/livez"]
        self.assertGreaterEqual(len(beats), 2)
        self.assertEqual({line["status"] for line in beats}, {200})


class Changes(Case):
    def test_the_file_is_taken_up(self):
        """By itself and at SIGHUP; connections that are open stay."""
        anna, berta = self.client(self.users, "anna"), self.client(self.others, "berta")
        shutil.copy(self.users.at("ca.pem"), self.users.at("clients.pem"))
        self.begin("--verbose", ca=self.users.at("clients.pem"))
        old = self.secure(anna)
        self.ask(old)
        want = self.answer(old)
        self.assertRefused(berta)
        self.users.join("clients.pem", "ca.pem", "../others/ca.pem")
        wait_until(lambda: self.answer_to(berta))
        self.assertLetIn(anna)
        self.users.join("clients.pem", "../others/ca.pem")
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: not self.answer_to(anna))
        self.assertLetIn(berta)
        self.ask(old)
        self.assertEqual(self.answer(old), want)
        old.close()
        self.stop()

    def test_a_bad_file_changes_nothing(self):
        shutil.copy(self.users.at("ca.pem"), self.users.at("clients.pem"))
        self.begin(ca=self.users.at("clients.pem"))
        for n, names in enumerate((["anna.pem"], ["anna.key"], []), 1):
            self.users.join("clients.pem", *names)
            self.server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: b"\ngpuserve_http_failed_reloads_total %d\n" % n in self.server.get("/metrics").body)
            self.assertLetIn(self.client(self.users, "anna"))
            self.assertRefused(self.client(None, None))
        err = self.stop()
        self.assertIn("clients.pem: certificate 1 is not a CA certificate", err)
        self.assertIn("clients.pem has no certificate", err)


class Revoked(Case):
    """Lists of revoked certificates."""

    def begin(self, *arguments, crl, **more):
        super().begin("--tls-client-crl", crl, *arguments, **more)

    def test_who_is_on_the_list_is_refused(self):
        self.users.issue("emil")
        self.begin("--verbose", crl=self.users.list("crl", "emil"))
        for number in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            only = {"minimum_version": number, "maximum_version": number}
            self.assertLetIn(self.client(self.users, "anna", **only))
            self.assertRefused(self.client(self.users, "emil", **only))
            self.assertRefused(self.client(self.others, "berta", **only))
        self.assertIn("TLS handshake failed: certificate verify failed: certificate revoked", self.stop())

    def test_lists_change(self):
        """By themselves and at SIGHUP; what is no good changes nothing."""
        anna = self.client(self.users, "anna")
        self.users.issue("frida")
        frida = self.client(self.users, "frida")
        self.users.list("crl")
        self.begin(crl=self.users.at("crl"))
        self.assertLetIn(frida)
        self.users.list("next", "frida")
        os.rename(self.users.at("next"), self.users.at("crl"))
        wait_until(lambda: not self.answer_to(frida))
        self.assertLetIn(anna)
        bad = (self.users.list("ended", times=("-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z")),
               self.others.list("foreign"), self.users.at("ca.pem"))
        for n, path in enumerate(bad, 1):
            shutil.copy(path, self.users.at("next"))
            os.rename(self.users.at("next"), self.users.at("crl"))
            self.server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: b"\ngpuserve_http_failed_reloads_total %d\n" % n in self.server.get("/metrics").body)
            self.assertRefused(frida)
            self.assertLetIn(anna)
        os.rename(self.users.list("next"), self.users.at("crl"))
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.answer_to(frida))
        self.assertIn("expired at 2020-02-01 00:00:00 UTC", self.stop())

    def test_expired_list_refuses_all_clients(self):
        """Its revocations are unknown after its end."""
        anna = self.client(self.users, "anna")
        self.begin("--verbose", crl=self.users.list("short", times=("-crlsec", "20")))
        time.sleep(20)  # each connection writes lines that are not read before the end
        wait_until(lambda: not self.answer_to(anna))
        self.users.list("next")
        os.rename(self.users.at("next"), self.users.at("short"))
        wait_until(lambda: self.answer_to(anna))
        self.assertIn("certificate verify failed: CRL has expired", self.stop())

    def test_cas_between(self):
        users = self.users
        for name in ("north", "south"):
            users.issue(name, FOR_CA)
        for name, by in (("gustav", "north"), ("hanna", "south")):
            users.issue(name, by=by)
            users.join("shown.pem", name + ".pem", by + ".pem")
            shutil.copy(users.at("shown.pem"), users.at(name + ".pem"))
        gustav, hanna = self.client(users, "gustav"), self.client(users, "hanna")
        all_of_them = users.join("all", "ca.pem", "north.pem", "south.pem")
        for extended in (True, False):
            for name, by, revoked in (("root", "ca", ["south"]), ("north", "north", []), ("south", "south", [])):
                users.list(name + ".crl", *revoked, by=by, extended=extended)
            self.begin("--verbose", crl=users.at("root.crl"))  # CAs that only the clients show have no list
            for client in (gustav, hanna):
                self.assertRefused(client)
            self.assertIn("unable to get certificate CRL", self.stop())
            self.begin("--verbose", ca=all_of_them, crl=users.join("all.crl", "root.crl", "north.crl", "south.crl"))
            self.assertLetIn(gustav)
            self.assertRefused(hanna)  # its CA is revoked
            self.assertIn("certificate revoked", self.stop())
        self.begin(ca=users.at("south.pem"), crl=users.at("south.crl"))  # trusted by itself: no CA above it is needed
        self.server.tls = hanna
        self.assertLetIn(hanna)
        self.assertRefused(gustav)
        self.stop()

    def refused(self, words, path, *more):
        for check in ((), ("--check-config",)):
            done = gpuserve("serve", MINILM, "--port", "0", *(more or (
                "--tls-cert", self.ca.at("one.pem"), "--tls-key", self.ca.at("one.key"), "--tls-client-ca", self.users.at("ca.pem"))),
                "--tls-client-crl", path, *check)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(words, done.err)

    def test_what_cannot_be_used(self):
        users = self.users
        good = users.list("good")
        one = ("--tls-cert", self.ca.at("one.pem"), "--tls-key", self.ca.at("one.key"))
        self.refused("need client CAs (--tls-client-ca)", good, *one)
        self.refused("need client CAs", good, "--no-sandbox")
        self.refused(users.at("missing") + ": No such file", users.at("missing"))
        self.refused("has no revocation list in PEM format", users.at("ca.pem"))
        self.refused("has no revocation list", users.join("empty"))
        with open(good, encoding="ascii") as source, open(users.at("broken"), "w", encoding="ascii") as target:
            target.write(source.read().replace("M", "N", 3))
        self.refused("broken: list 1: ", users.at("broken"))
        self.refused("list 2: ", users.join("second", "good", "broken"))
        self.refused("list 1 (/CN=a CA of the tests) expired at 2020-02-01 00:00:00 UTC",
                     users.list("ended", times=("-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20200201000000Z")))
        self.refused("list 2 (/CN=a CA of the tests) is valid only from 2090-01-01 00:00:00 UTC", users.join(
            "early", "good", os.path.basename(users.list("later", times=(
                "-crl_lastupdate", "20900101000000Z", "-crl_nextupdate", "20900201000000Z")))))
        self.refused("list 1 (/CN=a CA of the tests) is not signed by a CA", self.others.list("foreign"))
        self.refused("more than 256 lists", users.join("many", *["good"] * 257))
        with open(users.at("huge"), "wb") as file:
            file.truncate((16 << 20) + 1)
        self.refused("exceeds 16777216 bytes", users.at("huge"))
        users.join("two", "ca.pem", "../others/ca.pem")
        self.refused("has no list of the CA /CN=a CA of the tests", good, *one, "--tls-client-ca", users.at("two"))
        users.issue("mute", NO_LISTS)
        self.refused("does not permit signing lists", users.list("mute.crl", by="mute"), *one, "--tls-client-ca", users.at("mute.pem"))
        done = gpuserve("serve", MINILM, "--check-config", *one, "--tls-client-ca", users.at("two"), "--tls-client-crl",
                        users.join("both", "good", "../others/foreign"))
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(json.loads(done.out)["tls-client-crl"], users.at("both"))


class Files(Case):
    def refused(self, words, path, *more):
        one = ("--tls-cert", self.ca.at("one.pem"), "--tls-key", self.ca.at("one.key"))
        for check in ((), ("--check-config",)):
            done = gpuserve("serve", MINILM, "--port", "0", *(more or one), "--tls-client-ca", path, *check)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(words, done.err)

    def test_what_cannot_be_used(self):
        users = self.users
        users.join("empty")
        with open(users.at("ca.pem"), encoding="ascii") as source, open(users.at("broken"), "w", encoding="ascii") as target:
            target.write(source.read().replace("M", "N", 3))
        users.self_signed("leaf")
        self.refused(users.at("missing") + ": No such file", users.at("missing"))
        self.refused(self.folder + ": Is a directory", self.folder)
        self.refused("has no certificate", users.at("empty"))
        self.refused("has no certificate", users.at("ca.key"))
        self.refused("broken: certificate 1: ", users.at("broken"))
        self.refused("anna.pem: certificate 1 is not a CA certificate", users.at("anna.pem"))
        self.refused("leaf.pem: certificate 1 is not a CA certificate", users.at("leaf.pem"))
        self.refused("certificate 2 is not a CA certificate", users.join("second", "ca.pem", "anna.pem"))
        self.refused("certificate 2: ", users.join("second", "ca.pem", "broken"))
        self.refused("more than 256 certificates", users.join("many", *["ca.pem"] * 257))
        users.join("most", *["ca.pem"] * 256)
        with open(users.at("huge"), "wb") as file:
            file.truncate((1 << 20) + 1)
        self.refused("exceeds 1048576 bytes", users.at("huge"))
        self.refused("need TLS (--tls-cert)", users.at("ca.pem"), "--no-sandbox")
        done = gpuserve("serve", MINILM, "--check-config", "--tls-cert", self.ca.at("one.pem"), "--tls-key", self.ca.at("one.key"),
                        "--tls-client-ca", users.at("most"))
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(json.loads(done.out)["tls-client-ca"], users.at("most"))


if __name__ == "__main__":
    use_clients()
    main(__name__)
