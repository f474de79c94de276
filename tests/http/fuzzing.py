"""Fuzzed requests of every endpoint, with cancellations, among loads, reloads and batches.

  Fuzz    threads that send changed bodies, headers and paths, many on a connection, and read every reply
  Mix     a thread that loads, unloads and reloads models, and makes, reads, cancels and deletes batches

A reply has to be complete, JSON where it is an error, and never status 500. Known requests are sent in between: their
replies are equal each time. Meant for a server built with AddressSanitizer; each seed repeats its requests.
"""
import collections
import gzip
import json
import os
import random
import signal
import socket
import struct
import threading
import time

from common import PATIENCE, ROOT, gpuserve

MODELS = os.path.join(ROOT, "tests/data/models")
NAMES = {"m": "st-dense", "pairs": "bert-cross-encoder", "tokens": "bert-tokens", "labels": "bert-pairs-multi"}
AHEAD = 8  # requests on a connection before their replies are read
LEAVING = 0.02  # share of rounds that end without reading
TEXTS = ["hello", "w1 w2 w3", "a b", "", "w " * 60, "\u00e9\u4e16\u754c \U0001f600", "w1\0w2"]
ARROW = "application/vnd.apache.arrow.stream"

# A good request of each path that has a body; others get {}.
BODIES = {
    "/v1/embeddings": {"input": ["hello", "w1 w2"], "model": "m", "encoding_format": "base64", "dimensions": 4, "user": "a"},
    "/embeddings": {"input": [[5, 6, 7], [8]], "embedding_type": "int8"},
    "/openai/deployments/{model}/embeddings": {"input": "hello", "outputs": ["dense", "colbert"]},
    "/embed": {"inputs": ["hello"] * 300, "normalize": True, "truncate": True, "prompt_name": None, "truncation_direction": "left"},
    "/embed_all": {"inputs": ["hello", "w1 w2"]}, "/embed_sparse": {"inputs": "hello"},
    "/predict": {"inputs": ["hello", ["a", "b"]], "raw_scores": True, "model": "labels"},
    "/rerank": {"query": "w1", "texts": ["w2", "w3 w4"], "return_text": True, "raw_scores": False, "model": "pairs"},
    "/similarity": {"inputs": {"source_sentence": "a", "sentences": ["b", "c"]}, "parameters": {"truncate": True}},
    "/tokenize": {"inputs": ["hello", "w1"], "add_special_tokens": True}, "/decode": {"ids": [5, 6, 7], "skip_special_tokens": True},
    "/detokenize": {"tokens": [5, 6]}, "/embedding": {"content": "hello", "embd_normalize": 2},
    "/vertex": {"instances": [{"inputs": "hello", "type": "embed"}], "parameters": {"normalize": False}},
    "/invocations": {"inputs": ["hello"], "truncate": True},
    "/v2/models/{model}/infer": {"id": "1", "inputs": [{"name": "TEXT", "shape": [2], "datatype": "BYTES", "data": ["w1", "w2"]}],
                                 "outputs": [{"name": "embedding", "parameters": {"binary_data": True}}], "parameters": {"timeout": 1000000}},
    "/v1/embed": {"texts": ["a", "b"], "input_type": "search_query", "embedding_types": ["float", "int8"], "truncate": "END"},
    "/v2/embed": {"model": "m", "texts": ["a"], "input_type": "search_document", "embedding_types": ["binary", "base64"], "max_tokens": 5},
    "/v1/rerank": {"model": "pairs", "query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_documents": True},
    "/v2/rerank": {"model": "pairs", "query": "a", "documents": ["b", "c"], "max_tokens_per_doc": 9},
    "/v1/reranking": {"query": "a", "documents": ["b"], "top_k": 1}, "/classify": {"input": ["a", "b"], "model": "labels"},
    "/score": {"text_1": "a", "text_2": ["b", "c"], "model": "pairs"}, "/v1/score": {"queries": "a", "documents": ["b"]},
    "/pooling": {"input": "a", "model": "m"}, "/api/embed": {"model": "m", "input": ["a", "b"], "truncate": True, "options": {"num_ctx": 8}, "keep_alive": "1s"},
    "/api/embeddings": {"model": "m", "prompt": "a"}, "/api/show": {"model": "m", "verbose": True}, "/api/generate": {"model": "m", "prompt": "a"},
    "/": {"inputs": "w1 w2", "parameters": {"candidate_labels": ["w3", "w4"], "multi_label": True, "hypothesis_template": "w5 {}"}},
    "/models/{model}": {"inputs": "w1 w2 w3", "parameters": {"aggregation_strategy": "simple", "ignore_labels": []}, "model": "tokens"},
    "/v1/models/{model}:predict": {"instances": ["a", {"text": "b"}], "signature_name": "serving_default"},
    "/v1/models/{model}:classify": {"examples": ["a"]}, "/v2/repository/index": {"ready": True},
    "/v1/batches": {"input_file_id": "file-0", "endpoint": "/v1/embeddings", "completion_window": "24h", "metadata": {"a": "b"}},
}
NOT_FUZZED = {"/v2/repository/models/{model}/unload", "/health/deep"}  # of Mix, at its pace
KEYS = sorted({key for body in BODIES.values() for key in body} | {"chunking", "late_chunking", "method", "instruction", "heads", "timeout", "threshold"})
VALUES = [None, True, False, 0, -1, 1, 2 ** 31, 2 ** 63, -2 ** 63, 1e308, 0.5, "", "a", "NaN", "float", "\ud800", "\0", "w1 " * 2000, [], {}, [[]], [None], ["a", 1],
          [[1, 2], "a"], {"text": "a"}, {"": {}}, [["a"] * 3] * 3, list(range(300)), "m", "pairs", {"method": "window", "size": 8, "overlap": 2}]
HEADERS = [b"Accept: application/x-ndjson", b"Accept: " + ARROW.encode(), b"Accept: */*;q=0.1, application/x-ndjson;q=0.2", b"Accept-Encoding: gzip",
           b"Accept-Encoding: zstd, gzip;q=0.5", b"Accept-Encoding: *;q=", b"timeout: 0.001", b"timeout: x", b"x-gpuserve-space: a", b"x-request-id: b\xff",
           b"Expect: 100-continue", b"Content-Type: text/plain", b"Inference-Header-Content-Length: 0", b"Inference-Header-Content-Length: 17",
           b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", b"Origin: http://a", b"Cookie: a=b; c", b"Content-Encoding: gzip"]


def endpoints():
    """(method, path) of the server, without those that Mix calls."""
    done = gpuserve("serve", "--list-endpoints", "json")
    assert done.returncode == 0, done.err
    return [(one["method"], one["path"]) for one in json.loads(done.out) if one["path"] not in NOT_FUZZED]


class Generator:
    """Requests from a seed."""

    def __init__(self, seed, there):
        self.random, self.there = random.Random(seed), there

    def pick(self, values):
        return self.random.choice(values)

    def changed_value(self, value, depth=0):
        """A JSON value with a change somewhere."""
        if not isinstance(value, (dict, list)) or not value or self.random.random() < 0.25:
            return self.pick(VALUES + TEXTS)
        made = dict(value) if isinstance(value, dict) else dict(enumerate(value[:400]))
        key = self.pick(list(made))
        way = self.random.random()
        if way < 0.15:
            del made[key]
        elif way < 0.3:
            made[self.pick(KEYS) if isinstance(value, dict) else len(made)] = self.pick(VALUES + TEXTS)
        else:
            made[key] = self.changed_value(made[key], depth + 1)
        return made if isinstance(value, dict) else list(made.values())

    def changed_bytes(self, data):
        """A few bytes changed, removed, repeated or inserted."""
        for _ in range(self.random.randint(1, 4)):
            at, n = self.random.randrange(len(data) + 1), self.random.randint(1, 8)
            data = self.pick((data[:at] + self.random.randbytes(n) + data[at + n:], data[:at] + data[at + n:],
                              data[:at] + data[at:at + n] * 2 + data[at + n:], data[:at], data[:at] + self.pick((b"\0", b"\xff\xfe", b'"', b"{", b"]", b"\\u", b"1e9")) + data[at:]))
        return data

    def body(self, path):
        value = BODIES.get(path, {})
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            value = self.changed_value(value)
        if isinstance(value, dict) and self.random.random() < 0.1:
            value = {**value, "model": self.pick((*NAMES, "none", 1))}
        data = json.dumps(value, ensure_ascii=self.random.random() < 0.8).encode("utf-8", "surrogatepass")
        return self.changed_bytes(data) if self.random.random() < 0.25 else data

    def path(self, path):
        for name, values in (("{model}", (*NAMES, "none", "%00", "a%2Fb")), ("{version}", ("1", "2", "x")), ("{id}", ("file-0", "batch_0", "..", "%2e%2e"))):
            path = path.replace(name, self.pick(values))
        return path + self.pick(("?limit=1&after=x", "?a=%", "?api-version=1")) if self.random.random() < 0.05 else path

    def framed(self, body):
        """(headers, bytes) of a body: with a length, or in chunks."""
        if self.random.random() < 0.8:
            return b"Content-Length: %d\r\n" % len(body), body
        parts, at = [], 0
        while at < len(body):
            size = self.random.randint(1, 400)
            parts.append(b"%x%s\r\n%s\r\n" % (len(body[at:at + size]), self.pick((b"", b"", b";a=b")), body[at:at + size]))
            at += size
        return b"Transfer-Encoding: chunked\r\n", b"".join(parts) + b"0\r\n" + self.pick((b"", b"", b"X-a: b\r\n")) + b"\r\n"

    def request(self):
        """(bytes, whether its framing is known to be right)."""
        method, path = self.pick(self.there)
        if self.random.random() < 0.02:
            method = self.pick(("GET", "POST", "DELETE", "OPTIONS", "PUT"))
        headers = [self.pick(HEADERS) for _ in range(self.random.choice((0, 0, 1, 2)))]
        has_body = method in ("POST", "PUT")
        body = self.body(path) if has_body else b""
        if b"Content-Encoding: gzip" in headers and self.random.random() < 0.7:
            body = gzip.compress(body, 1)
        framing, sent = self.framed(body) if has_body else (b"", b"")
        head = b"%s %s HTTP/1.%d\r\nHost: localhost\r\n%s%s\r\n" % (
            method.encode(), self.path(path).encode(), self.random.random() < 0.98, b"".join(header + b"\r\n" for header in dict.fromkeys(headers)), framing)
        if self.random.random() < 0.02:
            return self.changed_bytes(head) + sent, False
        return head + sent, b"Expect: 100-continue" not in headers


class Connection:
    """Reads replies from one connection."""

    def __init__(self, server):
        self.socket = socket.create_connection((server.host, server.port), PATIENCE)
        self.file = self.socket.makefile("rb")

    def close(self, by_reset=False):
        if by_reset:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.file.close()
        self.socket.close()

    def chunks(self):
        while True:
            line = self.file.readline()
            if not line:
                raise EOFError("the last chunk is missing")
            size = int(line, 16)
            part = self.file.read(size + 2)
            if len(part) != size + 2:
                raise EOFError("a chunk is incomplete")
            if size == 0:
                return
            yield part[:-2]

    def reply(self):
        """(status, headers, body); None: the connection has ended. EOFError: in a reply."""
        line = self.file.readline()
        if not line:
            return None
        status, headers = int(line.split()[1]), {}
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, value = line.split(b":", 1)
            headers[name.lower()] = value.strip()
        if status == 100:
            return self.reply()
        if b"transfer-encoding" in headers:
            try:
                return status, headers, b"".join(self.chunks())
            except EOFError:
                if headers[b"content-type"] != ARROW.encode():  # where an error has no other form
                    raise
                return None
        size = 0 if status == 204 else int(headers.get(b"content-length", -1))
        body = self.file.read(size)
        if size >= 0 and len(body) != size:
            raise EOFError("%d of %d bytes" % (len(body), size))
        return status, headers, body


class Fuzz:
    """Threads that send `n` requests together; `counts` are of the statuses and of requests without one."""

    def __init__(self, server, n, n_threads=4, seed=0):
        self.server, self.there, self.seed = server, endpoints(), seed
        self.known = self.known_replies()
        self.counts, self.wrong, self.lock = collections.Counter(), [], threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(i, n // n_threads)) for i in range(n_threads)]
        for thread in self.threads:
            thread.start()

    def known_replies(self):
        """Bodies of good requests without what each reply has of its own."""
        found = {}
        for path, body in (("/embed", {"inputs": ["w1 w2", "hello"]}), ("/rerank", {"query": "w1", "texts": ["w2", "w3"], "model": "pairs"}),
                           ("/predict", {"inputs": "w1", "model": "labels"})):
            reply = self.server.post(path, body)
            assert reply.status == 200, (path, reply.body)
            found[path, json.dumps(body).encode()] = reply.body
        return found

    def note(self, what, reply, request):
        """Counts a reply; what must not be is kept with its request."""
        status, headers, body = reply
        with self.lock:
            self.counts[status] += 1
            self.counts["requests"] += 1
        kind = headers.get(b"content-type", b"")
        if status == 500 or not 200 <= status < 600:
            self.wrong.append((what, request[:4000], status, body[:500]))
        elif status >= 400 and b"content-encoding" not in headers and body and kind.startswith(b"application/json"):
            try:
                json.loads(body)
            except ValueError:
                self.wrong.append((what, request[:4000], status, body[:500]))

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] += n
            self.counts["requests"] += n

    def check_known(self, connection, generator):
        (path, body), want = generator.pick(list(self.known.items()))
        connection.socket.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body))
        reply = connection.reply()
        if reply is None:
            return
        with self.lock:
            self.counts["known", reply[0]] += 1
        if reply[0] not in (200, 404, 429, 503) or (reply[0] == 200 and reply[2] != want):
            self.wrong.append(("known", path, reply[0], reply[2][:500]))

    def on_connection(self, requests, half_close=False):
        """Sends requests at once and reads their replies. Returns the connection, or None if it is closed."""
        connection, data, n_read = Connection(self.server), b"", 0
        try:
            connection.socket.sendall(b"".join(requests))
            if half_close:
                connection.socket.shutdown(socket.SHUT_WR)
            for data in requests:
                reply = connection.reply()
                if reply is None:
                    break
                self.note("fuzzed", reply, data)
                n_read += 1
            else:
                return connection
        except (TimeoutError, EOFError, ValueError) as error:
            self.wrong.append((repr(error), data[:4000]))
        except OSError:  # a reset by the server, which has refused the rest
            pass
        self.count("unread", len(requests) - n_read)
        connection.close()
        return None

    def leave(self, requests, by_reset):
        connection = Connection(self.server)
        try:
            connection.socket.sendall(b"".join(requests))
        except OSError:
            pass
        connection.close(by_reset)
        self.count("left", len(requests))

    def round(self, generator, n):
        """Some requests, at most n; how many."""
        sent = [generator.request() for _ in range(min(AHEAD, n))]
        sure = [data for data, is_sure in sent if is_sure]
        for data, is_sure in sent:
            if not is_sure:  # the server may see its end elsewhere
                connection = self.on_connection([data], half_close=True)
                if connection:
                    connection.close()
        if generator.random.random() < LEAVING:
            self.leave(sure, generator.random.random() < 0.5)
        elif sure:
            connection = self.on_connection(sure)
            if connection:
                try:
                    self.check_known(connection, generator)
                except (TimeoutError, EOFError, ValueError) as error:
                    self.wrong.append(("known", repr(error)))
                except OSError:  # the last reply ended the connection
                    pass
                connection.close()
        return len(sent)

    def run(self, number, n):
        generator = Generator("%d %d" % (self.seed, number), self.there)
        try:
            while n > 0 and self.server.process.poll() is None:
                n -= self.round(generator, n)
        except OSError as error:  # no connection
            self.wrong.append(("connect", repr(error)))

    def wait(self):
        for thread in self.threads:
            thread.join()
        return self.counts


class Mix:
    """One after the other until stop(): model control, SIGHUP, a batch from its file to its results, deep health."""

    def __init__(self, server, pause=0.02):
        self.server, self.pause, self.ending, self.counts, self.failures = server, pause, threading.Event(), collections.Counter(), []
        self.random = random.Random(1)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        ways = (self.reload, self.model, self.batch, self.deep, self.cancel_load)
        while not self.ending.is_set():
            way = self.random.choice(ways)
            try:
                way()
                self.counts[way.__name__] += 1
            except OSError:
                self.counts["refused"] += 1  # all connections are taken
            except Exception as error:  # reported by the test
                self.failures.append(repr(error))
            self.ending.wait(self.pause)
        for name in NAMES if self.server.process.poll() is None else ():
            self.server.post("/v2/repository/models/%s/load" % name, {})

    def stop(self):
        self.ending.set()
        self.thread.join()

    def expect(self, reply, *statuses):
        if reply.status not in (429, 503, *statuses):
            self.failures.append((reply.status, reply.body[:500]))
        return reply.status == 200 and reply.json()

    def reload(self):
        self.server.process.send_signal(signal.SIGHUP)

    def model(self):
        path = "/v2/repository/models/%s/" % self.random.choice(list(NAMES))
        self.expect(self.server.post(path + "unload", {}), 200)
        self.expect(self.server.post(path + "load", {}), 200)

    def cancel_load(self):
        path = "/v2/repository/models/%s/load" % self.random.choice(list(NAMES))
        for _ in range(4):
            connection = Connection(self.server)
            connection.socket.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n" % path.encode())
            connection.close()

    def deep(self):
        self.expect(self.server.get("/health/deep"), 200)

    def batch(self):
        lines = "".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/embeddings", "body": {
            "model": "m", "input": self.random.choice(TEXTS)}}) + "\n" for i in range(self.random.randint(1, 60)))
        form = ("--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--b\r\n"
                "Content-Disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\n\r\n%s\r\n--b--\r\n" % lines).encode()
        file = self.expect(self.server.post("/v1/files", form, {"Content-Type": "multipart/form-data; boundary=b"}), 200)
        if not file:
            return
        batch = self.expect(self.server.post("/v1/batches", {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}), 200, 409, 413)
        if not batch:
            return
        path = "/v1/batches/" + batch["id"]
        if self.random.random() < 0.3:
            self.expect(self.server.post(path + "/cancel", {}), 200, 409)
        until = time.monotonic() + PATIENCE
        while (batch := self.expect(self.server.get(path), 200) or batch)["status"] not in ("completed", "failed", "cancelled", "expired"):
            if time.monotonic() > until:
                raise AssertionError(batch)
            time.sleep(0.01)
        results = [one for name in ("output_file_id", "error_file_id") if batch.get(name) for one in self.results(batch[name])]
        if results and batch["status"] == "completed" and sorted(results, key=int) != [str(i) for i in range(len(lines.splitlines()))]:
            raise AssertionError("not each line once: %r" % results)
        for name in ("output_file_id", "error_file_id", "input_file_id"):
            if batch.get(name):
                self.expect(self.server.request("DELETE", "/v1/files/" + batch[name]), 200, 409)

    def results(self, name):
        reply = self.server.get("/v1/files/%s/content" % name)
        if reply.status != 200:
            self.expect(reply)
            return []
        return [json.loads(line)["custom_id"] for line in reply.body.splitlines()]


def arguments(folder):
    """Of the server that is fuzzed: small models, all that has state, every coding."""
    return (*("%s=%s" % (name, os.path.join(MODELS, path)) for name, path in NAMES.items()), "--quiet", "--model-control", "--open-metrics",
            "--batch-dir", os.path.join(folder, "batches"), "--batch-disk", "64MiB", "--compress", "always", "--result-cache", "1MiB",
            "--access-log", os.path.join(folder, "log"), "--max-body-bytes", 1 << 20)
