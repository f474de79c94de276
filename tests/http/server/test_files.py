"""The files that the server may open (T15): its models, its keys, its log, and nothing else."""
import ctypes
import errno
import json
import os
import pathlib
import shutil
import signal
import struct
import tempfile
import threading
import unittest

from common import ROOT
from serving import MINILM, PATIENCE, Server, embed, main, wait_until

CREATE_RULESET, ASK_VERSION = 444, 1
SECRET = "a-secret-that-no-answer-shows"


def version():
    """Of the kernel's Landlock; below 1 there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ASK_VERSION)


def without_landlock(number):
    """In a child about to become the server: the kernel answers its call with this error."""
    libc = ctypes.CDLL(None, use_errno=True)
    # load the call's number; if it is the one, the error, else go on
    code = b"".join(struct.pack("HBBI", *one) for one in (
        (0x20, 0, 0, 0), (0x15, 0, 1, CREATE_RULESET), (0x06, 0, 0, 0x50000 | number),
        (0x06, 0, 0, 0x7FFF0000)))
    instructions = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", 4, ctypes.addressof(instructions))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter")


def point(link, target):
    os.symlink(target, link + ".new")
    os.rename(link + ".new", link)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.outside = tempfile.mkdtemp()
        self.server = None

    def tearDown(self):
        if self.server:
            self.server.stop(signal.SIGKILL)
        shutil.rmtree(self.folder)
        shutil.rmtree(self.outside)

    def at(self, name):
        return os.path.join(self.folder, name)

    def start(self, *arguments, env=None):
        self.server = Server("--device", "cpu", "--open-metrics", *arguments, env=env)

    def stop(self):
        server, self.server = self.server, None
        code, err = server.stop()
        self.assertEqual(code, 0, err)
        return err

    def figure(self, name):
        for line in self.server.get("/metrics").body.decode().splitlines():
            if line.startswith("gpuserve_http_%s_total " % name):
                return int(line.split()[1])
        raise AssertionError(name)

    def reload(self, name):
        before = self.figure(name)
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.figure(name) > before, "no end of the reload")

    def assertServes(self, **headers):
        reply = self.server.request("POST", "/embed", b'{"inputs": "a dog"}', headers)
        self.assertEqual(reply.status, 200, reply.body)
        want = embed(["a dog"])[0]
        got = reply.json()[0]
        self.assertLessEqual(max(abs(a - b) for a, b in zip(got, want)), 1e-6)

    def models(self):
        """A link to a model, the same model next to it and the same beyond."""
        beside, beyond = self.at("beside"), os.path.join(self.outside, "beyond")
        shutil.copytree(MINILM, beside)
        shutil.copytree(MINILM, beyond)
        point(self.at("model"), MINILM)
        return beside, beyond

    def test_a_model_outside(self):
        beside, beyond = self.models()
        self.start(self.at("model"))
        self.assertServes()
        point(self.at("model"), beyond)
        self.reload("failed_reloads")
        self.assertServes()
        point(self.at("model"), beside)
        self.reload("reloads")
        self.assertServes()
        err = self.stop()
        self.assertIn("model as it was", err)
        self.assertIn("Permission denied", err)
        self.assertNotIn("file access is not restricted", err)

    def test_adapters(self):
        """A LoRA adapter as a model and by request, whose base is found in another directory, and a reload."""
        base, lora = self.at("base"), os.path.join(ROOT, "tests", "data", "lora")
        shutil.copytree(os.path.join(ROOT, "tests", "data", "models", "bert"), base)
        with open(os.path.join(base, "vocab.txt"), "w") as file:
            file.write("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["w%d" % i for i in range(5, 96)]) + "\n")
        with open(os.path.join(lora, "expected.json")) as file:
            expected = json.load(file)
        for name in ("attention", "words"):
            shutil.copytree(os.path.join(lora, name), self.at(name))
            path = self.at(name + "/adapter_config.json")
            with open(path) as file:
                config = dict(json.load(file), base_model_name_or_path=base)
            with open(path, "w") as file:
                json.dump(config, file)

        def check(name, **more):
            ids, wanted = expected[name]["ids"][0], expected[name]["output"][0]
            body = dict(more, inputs=" ".join("w%d" % one for one in ids[1:-1]))
            reply = self.server.request("POST", "/embed", json.dumps(body).encode())
            self.assertEqual(reply.status, 200, reply.body)
            self.assertLess(max(abs(a - b) for a, b in zip(reply.json()[0], wanted)), 3e-6)

        for by_request in (False, True):
            if by_request:
                self.start(base, "--adapter", "attention=" + self.at("attention"), "--adapter", "words=" + self.at("words"))
            else:
                self.start(self.at("words"))
            for _ in range(2):
                check("words", **({"prompt_name": "words"} if by_request else {}))
                if by_request:
                    check("attention", prompt_name="attention")
                self.reload("reloads")
            self.assertNotIn("file access is not restricted", self.stop())

    def test_wrong_options_make_nothing(self):
        """Neither the folder of batches nor the log, which the sandbox makes before the server opens them."""
        folder, log = self.at("batches"), self.at("access.log")
        for wrong in (("--dialects", "tei"), ("--cors-origin", "nowhere"), ("--host", "0.0.0.0"), ("--tls-cert", self.at("none"))):
            with self.assertRaisesRegex(AssertionError, "no server: "):
                Server(MINILM, "--batch-dir", folder, "--access-log", log, *wrong)
            self.assertEqual([os.path.exists(one) for one in (folder, log)], [False, False], wrong)

    def test_keys_of_a_pipe(self):
        """It is read once, as `--api-key-file <(command)` needs it."""
        keys = self.at("keys")
        os.mkfifo(keys)
        writer = threading.Thread(target=lambda: pathlib.Path(keys).write_text("secret\n", encoding="ascii"))
        writer.start()
        self.start(MINILM, "--api-key-file", keys)
        writer.join()
        for key, status in (("secret", 200), ("other", 401)):
            self.assertEqual(self.server.get("/v1/models", Authorization="Bearer " + key).status, status)

    def test_without_the_sandbox(self):
        _, beyond = self.models()
        self.start(self.at("model"), "--no-sandbox")
        point(self.at("model"), beyond)
        self.reload("reloads")
        self.assertServes()
        self.stop()

    def test_a_kernel_that_has_none(self):
        for number, words in ((errno.ENOSYS, "this kernel has no Landlock"),
                              (errno.EOPNOTSUPP, "Landlock is switched off in this kernel"),
                              (errno.EPERM, "a seccomp filter denies Landlock")):
            self.server = Server(MINILM, "--device", "cpu",
                                 before=lambda number=number: without_landlock(number))
            self.assertServes()
            self.assertIn("file access is not restricted: " + words, self.stop())

    def test_keys(self):
        keys = self.at("keys")

        def write(text):
            with open(keys + ".new", "w", encoding="ascii") as file:
                file.write(text)
            os.rename(keys + ".new", keys)

        write("one\n")
        secret = os.path.join(self.outside, "secret")
        with open(secret, "w", encoding="ascii") as file:
            file.write(SECRET + "\n")
        self.start(MINILM, "--api-key-file", keys)
        write("two\n")
        self.reload("reloads")
        self.assertServes(Authorization="Bearer two")
        n = 0
        for target in (secret, "/etc/passwd", "/proc/self/root/etc/passwd", "/proc/1/environ"):
            if os.path.exists(target):
                point(keys, target)
                self.reload("failed_reloads")
                n += 1
        self.assertGreaterEqual(n, 3)
        self.assertServes(Authorization="Bearer two")
        self.assertEqual(self.server.get("/info", Authorization="Bearer " + SECRET).status, 401)
        err = self.stop()
        self.assertEqual(err.count("keys: Permission denied"), 2 * n, err)

    def test_the_log(self):
        log = self.at("log")
        self.start(MINILM, "--access-log", log)
        self.assertServes()
        os.rename(log, log + ".1")
        self.reload("reloads")
        self.assertServes()
        beyond = os.path.join(self.outside, "log")
        os.unlink(log)
        os.symlink(beyond, log)
        self.reload("failed_reloads")
        self.assertServes()
        self.stop()
        self.assertFalse(os.path.exists(beyond))
        with open(log + ".1", encoding="utf-8") as file:
            self.assertIn('"path":"/embed"', file.read())

    def test_standard_error_that_is_not_read(self):
        """It delays no request; what does not fit is reported when there is space."""
        begin, end = os.pipe()
        os.set_blocking(end, False)
        n_before = 0
        try:
            while True:
                n_before += os.write(end, bytes(4096))
        except BlockingIOError:
            os.set_blocking(end, True)
        self.server = Server(MINILM, "--verbose", "--open-metrics", stderr=end)
        os.close(end)
        self.assertServes()
        self.reload("reloads")
        with open(begin, "rb") as file:
            file.read(n_before)
            self.reload("reloads")
            self.assertServes()
            self.server.process.send_signal(signal.SIGTERM)
            self.assertEqual(self.server.process.wait(PATIENCE), 0)
            lines = file.read().decode().splitlines()
        self.server = None
        self.assertRegex(lines[0], r"^gpuserve: warning: \d+ log lines were dropped$")
        self.assertGreater(len(lines), 1)
        for line in lines:
            self.assertRegex(line, "^gpuserve: ")

    def test_a_log_directly_in_a_common_directory(self):
        """It is made before these are closed, and written; anew it cannot be made there."""
        log = tempfile.mktemp(prefix="gpuserve-test-", dir="/tmp")
        try:
            self.start(MINILM, "--access-log", log)
            self.assertServes()
            os.rename(log, log + ".1")
            self.reload("failed_reloads")
            self.assertServes()
            self.stop()
            with open(log + ".1", encoding="utf-8") as file:
                self.assertEqual(file.read().count('"path":"/embed"'), 2)
            self.assertFalse(os.path.exists(log))
        finally:
            for path in (log, log + ".1"):
                if os.path.exists(path):
                    os.unlink(path)

    def test_packed_weights(self):
        """The sandbox allows to write, replace and map them, also after the start."""
        cache = os.path.join(self.outside, "a", "weights")
        options = (MINILM, "--mmap", "--weights-cache", cache, "--verbose")
        self.start(*options)
        self.assertServes()
        err = self.stop()
        self.assertIn("packed weights written to " + cache, err)
        self.assertNotIn("file access is not restricted", err)
        names = os.listdir(cache)
        self.assertEqual(len(names), 1)
        self.start(*options)
        self.assertServes()
        with open(os.path.join(cache, names[0]), "r+b") as file:
            file.write(b"damaged")
        self.reload("reloads")
        self.assertServes()
        err = self.stop()
        self.assertIn("packed weights from " + cache, err)
        self.assertIn("is ignored: it is not a file of packed weights", err)
        self.assertIn("packed weights written to " + cache, err)
        self.assertEqual(os.listdir(cache), names)

    def test_names_of_the_cache(self):
        repository = self.at("models--o--m")
        os.makedirs(os.path.join(repository, "refs"))
        for revision in ("a", "b"):
            shutil.copytree(MINILM, os.path.join(repository, "snapshots", revision))
        ref = os.path.join(repository, "refs", "main")
        with open(ref, "w", encoding="ascii") as file:
            file.write("a")
        self.start("o/m", "--cache-dir", self.folder)
        self.assertServes()
        with open(ref, "w", encoding="ascii") as file:
            file.write("b")
        shutil.rmtree(os.path.join(repository, "snapshots", "a"))
        self.reload("reloads")
        self.assertServes()
        self.stop()


if __name__ == "__main__":
    if version() < 1:
        print("no Landlock in this kernel")
        raise SystemExit(77)
    main(__name__)
