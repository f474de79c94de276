"""OpenTelemetry traces of `serve`: what a collector gets, read by OpenTelemetry's own types, and that no
state of the collector changes what clients get. Exemplars, read by prometheus-client."""
import base64
import http.server
import json
import os
import socket
import ssl
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate

from certificates import Authority
from serving import MINILM, Server, figure, main, use_clients, wait_until

use_clients()

from google.protobuf import json_format  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status  # noqa: E402
from opentelemetry.proto_json.collector.trace.v1.trace_service import ExportTraceServiceRequest as JsonRequest  # noqa: E402
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families as plain_families  # noqa: E402

from common import INSTRUMENTED, ROOT, environment, gpuserve  # noqa: E402

TINY = os.path.join(ROOT, "tests/data/models/st-dense")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PHASES = ["tokenize", "queue", "batch", "reply"]
IDS = ("traceId", "spanId", "parentSpanId")
OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"}


def parent(trace=TRACE, span=PARENT, flags="01"):
    return {"traceparent": "00-%s-%s-%s" % (trace, span, flags)}


def ids_as_protobuf(value):
    """OTLP/JSON has ids in hexadecimal, where the JSON form of protobuf has base64: the only difference."""
    if isinstance(value, list):
        return [ids_as_protobuf(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: base64.b64encode(bytes.fromhex(one)).decode() if key in IDS else ids_as_protobuf(one)
            for key, one in value.items()}


class Collector:
    """Replies `replies` (status, headers or a function that returns them, body), the last one to all that follow. Holds each request while `hold` is
    not set. `certificate`: (PEM, key), for TLS."""

    def __init__(self, *replies, certificate=None):
        self.replies = list(replies) or [(200, {}, b"{}")]
        self.requests, self.names, self.hold = [], [], threading.Event()
        self.hold.set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers, text = collector.replies[min(len(collector.requests), len(collector.replies) - 1)]
                headers = headers() if callable(headers) else headers
                collector.requests.append((time.monotonic(), self.path, self.headers, body))
                collector.hold.wait()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(text)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # the server may leave before its reply
        self.url = "http%s://localhost:%d" % ("s" if certificate else "", self.server.server_port)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            context.sni_callback = lambda _, name, __: self.names.append(name)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def close(self):
        self.hold.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def read(self):
        """(resource, spans) of all requests, by protobuf, which refuses unknown names and wrong types."""
        spans, resources = [], []
        for _, _, headers, body in self.requests:
            assert headers["Content-Type"] == "application/json"
            json_request = JsonRequest.from_json(body)  # OpenTelemetry's reader of this form
            request = json_format.Parse(json.dumps(ids_as_protobuf(json.loads(body))), ExportTraceServiceRequest())
            for resource, other in zip(request.resource_spans, json_request.resource_spans, strict=True):
                resources.append(attributes(resource.resource))
                for scope, other_scope in zip(resource.scope_spans, other.scope_spans, strict=True):
                    spans += scope.spans
                    assert [(one.trace_id, one.span_id, one.parent_span_id or b"", one.start_time_unix_nano) for one in scope.spans] == [
                        (one.trace_id, one.span_id, one.parent_span_id or b"", one.start_time_unix_nano) for one in other_scope.spans]
        return resources, spans


def attributes(thing):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in thing.attributes}


def servers(spans):
    return [one for one in spans if one.kind == Span.SPAN_KIND_SERVER]


def children(spans, server):
    return [one for one in spans if one.parent_span_id == server.span_id and one.trace_id == server.trace_id]


class Exported(unittest.TestCase):
    def start(self, *arguments, model=TINY, collector=None, url=None, **variables):
        if not url:
            self.collector = collector or Collector()
            self.addCleanup(self.collector.close)
        variables.setdefault("OTEL_BSP_SCHEDULE_DELAY", "20")
        server = Server(model, "--device", "cpu", "--otlp-endpoint", url or self.collector.url, *arguments, env=environment(**variables))
        self.addCleanup(server.stop)
        return server

    def embed(self, server, texts, headers=None):
        reply = server.post("/v1/embeddings", {"input": texts}, headers)
        self.assertEqual(reply.status, 200, reply.body)
        return reply

    def read(self, n):
        """Once n requests have arrived."""
        wait_until(lambda: len(servers(self.collector.read()[1])) >= n, "no spans")
        resources, spans = self.collector.read()
        self.assertEqual(len(servers(spans)), n)
        return resources, spans

    def assertOrder(self, *times):
        self.assertEqual(list(times), sorted(times))


class Traces(Exported):
    def test_spans_of_a_request(self):
        server = self.start("--otlp-service-name", "search")
        before = time.time_ns()
        reply = self.embed(server, ["a dog", "the bill"], {**parent(), "tracestate": "vendor=1,other=2", "User-Agent": "té/1",
                                                           "x-request-id": "my-id"})
        resources, spans = self.read(1)
        after = time.time_ns()
        self.assertEqual(resources[0]["service.name"], "search")
        self.assertEqual(resources[0]["service.version"], gpuserve("--version").out.split()[-1])
        one, = servers(spans)
        self.assertEqual((one.trace_id.hex(), one.parent_span_id.hex(), one.trace_state, one.name), (
            TRACE, PARENT, "vendor=1,other=2", "POST /v1/embeddings"))
        self.assertEqual(one.flags, 0x301)  # sampled; the parent is remote
        self.assertEqual(one.status.code, Status.STATUS_CODE_UNSET)
        found = attributes(one)
        for name, value in {"http.request.method": "POST", "url.path": "/v1/embeddings", "http.route": "/v1/embeddings", "url.scheme": "http",
                            "http.response.status_code": 200, "client.address": "127.0.0.1", "gen_ai.request.model": "st-dense",
                            "gen_ai.usage.input_tokens": reply.json()["usage"]["prompt_tokens"], "gpuserve.request.id": "my-id"}.items():
            self.assertEqual(found[name], value, name)
        parts = children(spans, one)
        self.assertEqual([part.name for part in parts], PHASES)
        self.assertOrder(before, one.start_time_unix_nano, *(at for part in parts for at in (part.start_time_unix_nano, part.end_time_unix_nano)),
                         one.end_time_unix_nano, after)
        self.assertEqual(len({span.span_id for span in spans}), 6)
        batch = parts[2]
        link, = batch.links
        shared, = (span for span in spans if span.name == "shared batch")
        self.assertEqual((link.trace_id, link.span_id, shared.parent_span_id), (shared.trace_id, shared.span_id, b""))
        self.assertNotEqual(shared.trace_id, one.trace_id)
        self.assertEqual((shared.start_time_unix_nano, shared.end_time_unix_nano), (batch.start_time_unix_nano, batch.end_time_unix_nano))
        for span in (shared, link, batch):
            self.assertEqual(attributes(span), {"gen_ai.request.model": "st-dense", "gpuserve.batch.rows": 2, "gpuserve.device": "cpu",
                                                "gpuserve.batch.tokens": reply.json()["usage"]["prompt_tokens"]})

    @unittest.skipIf(INSTRUMENTED, "takes long; tests/runtime/scheduler/test_trace.c shares batches too")
    def test_requests_link_to_the_batch_that_they_shared(self):
        server = self.start("--threads", "1", model=MINILM)
        long = [" ".join(["word%d" % i] * 50) for i in range(40)]
        n = 0

        def shared_links():
            nonlocal n
            with ThreadPoolExecutor(13) as pool:
                big = pool.submit(self.embed, server, long, parent())
                for done in [big, *(pool.submit(self.embed, server, "text %d of %d" % (i, n)) for i in range(12))]:
                    done.result()
            n += 13
            _, spans = self.read(n)
            to = {}
            for one in spans:
                for link in one.links:
                    to.setdefault((link.trace_id, link.span_id), []).append((one, link))
            targets = [(span.trace_id, span.span_id) for span in spans if span.name == "shared batch"]
            self.assertEqual(len(targets), len(set(targets)), "a batch was exported twice")
            self.assertLessEqual(set(to), set(targets))
            for span in spans:
                if span.name == "shared batch":
                    for one, link in to.get((span.trace_id, span.span_id), []):
                        self.assertEqual(attributes(link), attributes(span))
                        self.assertOrder(one.start_time_unix_nano // 1000000 - 1, span.start_time_unix_nano // 1000000)
            return any(len({one.trace_id for one, _ in found}) > 1 and attributes(found[0][1])["gpuserve.batch.rows"] >= len(found)
                       for found in to.values())

        wait_until(shared_links, "no two requests shared a batch")

    def test_jobs_of_a_streamed_reply(self):
        server = self.start()
        texts = ["text %d" % i for i in range(600)]
        reply = server.post("/embed", {"inputs": texts}, {"Accept": "application/x-ndjson"})
        self.assertEqual(len(reply.body.splitlines()), 600)
        _, spans = self.read(1)
        one, = servers(spans)
        names = [part.name for part in children(spans, one)]
        self.assertGreater(names.count("batch"), 1)
        self.assertEqual(names.count("queue"), names.count("batch"))
        self.assertEqual(names.count("reply"), 1)
        rows = sum(attributes(part)["gpuserve.batch.rows"] for part in children(spans, one) if part.name == "batch")
        self.assertEqual(rows, 600)

    def test_lines_of_a_batch_job(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        server = self.start("--batch-dir", folder.name)
        lines = b"".join(json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/embeddings", "body": {"input": text}}).encode() + b"\n"
                         for i, text in enumerate(("a dog", "a cat", "")))
        body = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n' \
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n' + lines + b"\r\n--b--\r\n"
        file = server.post("/v1/files", body, {"Content-Type": "multipart/form-data; boundary=b"})
        self.assertEqual(file.status, 200, file.body)
        batch = server.post("/v1/batches", {"input_file_id": file.json()["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"})
        self.assertEqual(batch.status, 200, batch.body)
        _, spans = self.read(5)
        found = [one for one in servers(spans) if one.name == "POST /v1/embeddings"]
        self.assertEqual(sorted(attributes(one)["http.response.status_code"] for one in found), [200, 200, 400])
        for one in found:
            if attributes(one)["http.response.status_code"] == 200:
                self.assertEqual([part.name for part in children(spans, one)].count("batch"), 1)

    def test_requests_without_a_job(self):
        server = self.start("--access-log", "-")
        self.assertEqual(server.post("/embed", {"inputs": ""}).status, 400)
        self.assertEqual(server.get("/nowhere").status, 404)
        self.assertEqual(server.get("/info").status, 200)
        for path in ("/health", "/metrics", "/"):  # probes, but for one of a traced client
            self.assertEqual(server.get(path).status, 200)
        self.assertEqual(server.get("/health", **parent()).status, 200)
        self.assertGreaterEqual(server.request("BREW", "/nowhere").status, 404)
        _, spans = self.read(5)
        self.assertEqual(len(spans), 5)
        found = {one.name: one for one in spans}
        self.assertEqual(set(found), {"POST /embed", "GET", "GET /info", "GET /health", "HTTP"})
        self.assertEqual([attributes(found["HTTP"])[name] for name in ("http.request.method", "http.request.method_original")], ["_OTHER", "BREW"])
        self.assertEqual(attributes(found["POST /embed"])["http.response.status_code"], 400)
        self.assertEqual({one.status.code for one in spans}, {Status.STATUS_CODE_UNSET})  # the client's fault
        line = json.loads(server.process.stdout.readline())
        self.assertEqual((line["path"], line["trace_id"]), ("/embed", found["POST /embed"].trace_id.hex()))

    def test_a_client_that_leaves(self):
        server = self.start("--threads", "1", model=MINILM)
        body = json.dumps({"inputs": [" ".join(["w%d" % i] * 200) for i in range(2000)], "truncate": True}).encode()
        client = socket.create_connection((server.host, server.port))
        client.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_until(lambda: figure(server, "gpuserve_http_requests_working") > 0)
        client.close()
        _, spans = self.read(1)
        one, = servers(spans)
        self.assertEqual((one.status.code, attributes(one)["error.type"]), (Status.STATUS_CODE_ERROR, "client_disconnected"))
        self.assertNotIn("http.response.status_code", attributes(one))

    def test_clients_that_leave_before_their_bodies_are_read(self):
        server = self.start("--threads", "1", model=MINILM)
        n, body = 12, json.dumps({"inputs": ["word " * 50] * 2000}).encode()
        for _ in range(n):
            with socket.create_connection((server.host, server.port)) as client:
                client.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        _, spans = self.read(n)
        for one in servers(spans):
            self.assertEqual(attributes(one)["error.type"], "client_disconnected")

    def sampled(self, sampler, argument=None):
        """Which of these requests a server with the sampler exports."""
        low, high = ("%032x" % (1 << 127 | half) for half in (1 << 62, 3 << 62))
        server = self.start(OTEL_TRACES_SAMPLER=sampler, **({"OTEL_TRACES_SAMPLER_ARG": argument} if argument else {}))
        for trace in (low, high):
            for flags in ("00", "01"):
                self.embed(server, "a", parent(trace, flags * 8, flags) if flags == "01" else parent(trace, "02" * 8, flags))
        self.embed(server, "a")
        self.assertEqual(server.stop()[0], 0)  # sends what is left
        spans = servers(self.collector.read()[1])
        names = {low: "low", high: "high"}
        return sorted(("%s %s" % (names[one.trace_id.hex()], "on" if one.parent_span_id == b"\1" * 8 else "off") if one.parent_span_id else "root")
                      for one in spans)

    def test_samplers(self):
        sampled, every = ["high on", "low on"], ["high off", "high on", "low off", "low on", "root"]
        for sampler, argument, want in (
                ("parentbased_always_on", None, [*sampled, "root"]), ("parentbased_always_off", None, sampled), ("always_on", None, every),
                ("always_off", None, []), ("parentbased_traceidratio", "0", sampled), ("parentbased_traceidratio", "1.0", [*sampled, "root"])):
            self.assertEqual(self.sampled(sampler, argument), want, sampler)
        half = self.sampled("traceidratio", "0.5")
        self.assertEqual([one for one in half if one != "root"], ["low off", "low on"])

    def test_a_root_by_ratio(self):
        server = self.start(OTEL_TRACES_SAMPLER="parentbased_traceidratio", OTEL_TRACES_SAMPLER_ARG="0.3")
        for _ in range(200):
            server.get("/info")
        self.assertEqual(server.stop()[0], 0)
        n = len(servers(self.collector.read()[1]))
        self.assertTrue(20 < n < 110, n)  # 60 expected; each border is 6 standard deviations away

    def test_a_collector_that_is_busy_gets_the_same_again(self):
        def in_two_seconds():  # a date has whole seconds
            return {"retry-after": formatdate(time.time() + 2, usegmt=True)}

        taken = (200, {}, b'{"partialSuccess":{"rejectedSpans":"2"}}')
        for status, headers, wait in ((503, {"Retry-After": "1"}, 0.99), (429, in_two_seconds, 1.01), (504, {}, 0.49)):  # backoff: 0.5 s to 1 s
            collector = Collector((status, headers, b""), taken)
            server = self.start(collector=collector)
            self.embed(server, "a", parent())
            wait_until(lambda: figure(server, "gpuserve_traces_exported_total") == 1)
            times, _, _, bodies = zip(*collector.requests)
            self.assertEqual(bodies, (bodies[0],) * 2)
            self.assertGreaterEqual(times[1] - times[0], wait)
            self.assertEqual(figure(server, "gpuserve_traces_dropped_total"), 0)
            _, err = server.stop()
            self.assertIn("status %d; it is tried again" % status, err)
            self.assertIn("succeeds again", err)
            self.assertIn("the collector refused 2 spans", err)
            self.assertEqual(err.count("traces: POST"), 2, err)

    def test_what_a_collector_refuses_is_not_sent_again(self):
        server = self.start(collector=Collector((400, {}, b"")))
        self.embed(server, "a")
        wait_until(lambda: figure(server, "gpuserve_traces_dropped_total") == 1)
        self.assertEqual(len(self.collector.requests), 1)
        _, err = server.stop()
        self.assertIn("status 400; traces are lost", err)

    def test_replies_of_all_kinds(self):
        replies = ((b"nonsense\r\n\r\n", 0), (b"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", 0), (b"HTTP/1.1 99 A\r\n\r\n", 0), (b"HTTP/1.1 200 OK\r\n\r\n", 1),
                   (b"HTTP/1.0 204 No Content\r\n\r\n", 1), (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{", 1),
                   (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 1), (b"HTTP/1.1 200 \0\r\n\r\n" + b"a" * 100000, 0))
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = self.start(url="http://127.0.0.1:%d" % listener.getsockname()[1])
            sent = {False: 0, True: 0}
            for reply, is_taken in replies:
                self.assertEqual(server.get("/info").status, 200)
                client, _ = listener.accept()
                with client, client.makefile("rb") as request:
                    size = next(int(line[15:]) for line in request if line.startswith(b"Content-Length:"))
                    while request.readline() != b"\r\n":
                        pass
                    request.read(size)
                    client.sendall(reply)
                sent[bool(is_taken)] += 1
                if reply.endswith(b"a"):  # no header that ends: as no reply
                    continue
                wait_until(lambda: [figure(server, "gpuserve_traces_%s_total" % name) for name in ("dropped", "exported")] == [
                    sent[False], sent[True]], reply)
            client, _ = listener.accept()
            client.close()
        self.assertEqual(server.stop()[0], 0)

    def answered(self, server, n):
        """Requests of four clients, all of which are answered; then the figures of the queue."""
        with ThreadPoolExecutor(4) as pool:
            self.assertEqual({pool.submit(server.get, "/info").result().status for _ in range(n)}, {200})

    def test_a_collector_that_is_absent(self):
        with socket.socket() as held:  # a port without a listener
            held.bind(("127.0.0.1", 0))
            server = self.start(url="http://127.0.0.1:%d" % held.getsockname()[1], OTEL_BSP_MAX_QUEUE_SIZE="10")
            self.answered(server, 300)
            self.assertGreaterEqual(figure(server, "gpuserve_traces_dropped_total"), 300 - 10 - 128)
            self.assertEqual(figure(server, "gpuserve_traces_exported_total"), 0)
            code, err = server.stop()
            self.assertEqual((code, err.count("traces: POST")), (0, 1), err)
            self.assertIn("Connection refused", err)

    def test_a_collector_that_hangs(self):
        collector = Collector()
        collector.hold.clear()
        server = self.start("--drain-timeout", "1", collector=collector, OTEL_BSP_MAX_QUEUE_SIZE="10")
        self.answered(server, 300)
        self.assertGreaterEqual(figure(server, "gpuserve_traces_dropped_total"), 300 - 10 - 128)
        self.assertEqual(len(collector.requests), 1)
        code, err = server.stop()
        self.assertEqual(code, 0, err)

    def test_what_waits_is_sent_at_the_end(self):
        busy = (503, {"Retry-After": "2"}, b"")  # longer than the moment that a server without time to drain has
        server = self.start(collector=Collector(busy, (200, {}, b"{}")), OTEL_BSP_SCHEDULE_DELAY="3600000")
        for _ in range(3):
            self.embed(server, "a")
        self.assertEqual(self.collector.requests, [])
        self.assertEqual(server.stop()[0], 0)
        (_, _, _, body), (_, _, _, again) = self.collector.requests
        self.assertEqual(again, body)
        self.assertEqual(len(servers(self.collector.read()[1])), 2 * 3)

    def test_environment(self):
        collector, other = Collector(), Collector()
        for one in (collector, other):
            self.addCleanup(one.close)
        for arguments, variables, want in (
                ([], {"OTEL_EXPORTER_OTLP_ENDPOINT": other.url + "/base/", "OTEL_SERVICE_NAME": "of-otel"}, ("/base/v1/traces", "of-otel")),
                ([], {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": other.url + "/in?a=1"}, ("/in?a=1", "gpuserve")),
                (["--otlp-endpoint", other.url], {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector.url, "GPUSERVE_OTLP_SERVICE_NAME": "of-us",
                                                  "OTEL_SERVICE_NAME": "of-otel"}, ("/v1/traces", "of-us")),
                ([], {"OTLP_ENDPOINT": other.url, "OTLP_SERVICE_NAME": "of-tei"}, ("/v1/traces", "of-tei")),
                ([], {"OTEL_EXPORTER_OTLP_ENDPOINT": other.url, "OTEL_SDK_DISABLED": "true"}, None)):
            other.requests.clear()
            server = Server(TINY, "--device", "cpu", *arguments, env=environment(**variables))
            self.embed(server, "a")
            code, err = server.stop()
            self.assertEqual(code, 0, err)
            got = [(path, json.loads(body)["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"])
                   for _, path, _, body in other.requests]
            self.assertEqual(got, [want] if want else [], variables)
        self.assertEqual(collector.requests, [])

    def test_headers(self):
        server = self.start("--access-log", "-", OTEL_EXPORTER_OTLP_HEADERS="x-team=nobody", OTEL_EXPORTER_OTLP_TRACES_HEADERS="authorization=Basic%20YTpi, x-a = b")
        self.embed(server, "a")
        self.read(1)
        _, _, headers, _ = self.collector.requests[0]
        self.assertEqual([headers[name] for name in ("authorization", "x-a", "x-team", "Content-Type")], ["Basic YTpi", "b", None, "application/json"])

    def test_a_collector_with_tls(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        ca = Authority(folder.name)
        certificate, authorities = ca.sign("server"), ca.at("ca.pem")
        collector = Collector(certificate=certificate)
        for url, variables in ((None, {"OTEL_EXPORTER_OTLP_CERTIFICATE": authorities}), (None, {"SSL_CERT_FILE": authorities}),
                               (collector.url.replace("localhost", "127.0.0.1"), {"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": authorities})):
            collector.requests.clear()
            server = self.start(collector=collector, url=url, OTEL_EXPORTER_OTLP_HEADERS="x-key=a", **variables)
            self.embed(server, ["w1"] * 200)
            wait_until(lambda: collector.requests, "no request")
            code, err = server.stop()
            self.assertEqual((code, err.count("traces:")), (0, 0), err)
            self.assertEqual([headers["x-key"] for _, _, headers, _ in collector.requests], ["a"])
        self.assertEqual(collector.names, ["localhost", "localhost", None])  # an address is no server name
        self.assertEqual(len(servers(collector.read()[1])), 1)

    def test_a_collector_that_is_not_trusted_gets_nothing(self):
        folder, other_folder = tempfile.TemporaryDirectory(), tempfile.TemporaryDirectory()
        for one in (folder, other_folder):
            self.addCleanup(one.cleanup)
        ca, other = Authority(folder.name), Authority(other_folder.name)
        collector, plain = Collector(certificate=ca.sign("server")), Collector()
        ca.sign_ended("ended", "subjectAltName=DNS:localhost\n")
        ended = Collector(certificate=(ca.at("ended.pem"), ca.at("ended.key")))
        elsewhere = Collector(certificate=ca.sign("elsewhere", "DNS:other.example,IP:127.0.0.2"))
        for one in (collector, plain, ended, elsewhere):
            self.addCleanup(one.close)
        for words, url, authorities in (
                ("certificate verify failed: (self-signed certificate in certificate chain|unable to get local issuer)", collector.url, other),
                ("certificate verify failed: hostname mismatch", elsewhere.url, ca),
                ("certificate verify failed: IP address mismatch", elsewhere.url.replace("localhost", "127.0.0.1"), ca),
                ("certificate verify failed: certificate has expired", ended.url, ca),
                ("TLS: (wrong version number|packet length too long|record layer failure)", plain.url.replace("http://", "https://"), ca)):
            server = self.start(url=url, OTEL_EXPORTER_OTLP_CERTIFICATE=authorities.at("ca.pem"))
            self.embed(server, "a")
            code, err = server.stop()
            self.assertEqual(code, 0, err)
            self.assertRegex(err, words)
        self.assertEqual([one.requests for one in (collector, plain, ended, elsewhere)], [[]] * 4)

    def test_wrong_options(self):
        for words, arguments, variables in (
                (["CA certificates /nowhere.pem"], ["--otlp-endpoint", "https://c:4318"], {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem"}),
                (["CA certificates " + TINY], [], {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/x", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE": TINY}),
                (["header 2 of OTLP exports", "OTEL_EXPORTER_OTLP_HEADERS"], ["--otlp-endpoint", "http://c"], {"OTEL_EXPORTER_OTLP_HEADERS": "a=b,SECRET"}),
                (["does not begin with http:// or https://"], ["--otlp-endpoint", "c:4318"], {}), (["is not valid"], ["--otlp-endpoint", "http://c:0"], {}),
                (["is not valid"], ["--otlp-endpoint", "http://c:65536"], {}), (["is not valid"], ["--otlp-endpoint", "http://"], {}),
                (["is not valid"], ["--otlp-endpoint", "http://[::1"], {}), (["is not valid"], ["--otlp-endpoint", "http://c/a b"], {}),
                (["is not valid"], ["--otlp-endpoint", "http://c\r\nX: y"], {}), (["has a user name"], ["--otlp-endpoint", "http://me:it@c"], {}),
                (["\"jaeger_remote\" (OTEL_TRACES_SAMPLER)", "parentbased_traceidratio"], ["--otlp-endpoint", "http://c"],
                 {"OTEL_TRACES_SAMPLER": "jaeger_remote"}),
                *((["OTEL_TRACES_SAMPLER_ARG"], ["--otlp-endpoint", "http://c"], {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": wrong})
                  for wrong in ("1.5", "-0.1", "half", "nan", "0.5x")),
                (["OTEL_BSP_SCHEDULE_DELAY", "0"], ["--otlp-endpoint", "http://c"], {"OTEL_BSP_SCHEDULE_DELAY": "0"}),
                (["OTEL_BSP_MAX_QUEUE_SIZE", "many"], ["--otlp-endpoint", "http://c"], {"OTEL_BSP_MAX_QUEUE_SIZE": "many"})):
            for more in ([], ["--check-config"]):
                done = gpuserve("serve", TINY, "--port", "0", *arguments, *more, env=environment(**variables))
                self.assertIn(done.returncode, (1, 2), (arguments, variables))
                for one in words:
                    self.assertIn(one, done.err, (arguments, variables))

    def test_variables_without_effect_are_named(self):
        for words, variables in (("OTEL_EXPORTER_OTLP_PROTOCOL grpc", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}),
                                 ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": "/a.pem"}), ("port of OTLP over gRPC", {})):
            done = gpuserve("serve", TINY, "--check-config", env=environment(
                OTEL_EXPORTER_OTLP_ENDPOINT="http://c:4318" if variables else "http://c:4317", **variables))
            self.assertEqual(done.returncode, 0, done.err)
            self.assertIn(words, done.err)
            self.assertEqual(done.err.count("\n"), 1)


class Exemplars(Exported):
    NAMES = {"gpuserve_request_seconds", "gpuserve_request_tokenize_seconds", "gpuserve_request_queue_seconds", "gpuserve_request_compute_seconds"}

    def page(self, server, headers):
        reply = server.request("GET", "/metrics", headers=headers)
        return reply.headers["Content-Type"].split(";")[0], reply.body.decode()

    def samples(self, families):
        return [sample for family in families for sample in family.samples]

    def test_exemplars(self):
        server = self.start()
        for i in range(20):
            self.embed(server, "text %d" % i, parent(trace="%032x" % (i + 1)))
        self.embed(server, "not sampled", parent(trace="%032x" % 77, flags="00"))
        self.read(20)
        kind, page = self.page(server, OPENMETRICS)
        self.assertEqual(kind, "application/openmetrics-text")
        found = {}
        for family in openmetrics_families(page):
            below = 0
            for sample in family.samples:
                if not sample.name.endswith("_bucket"):
                    self.assertIsNone(sample.exemplar)
                    continue
                upto = float(sample.labels["le"])
                if sample.exemplar:
                    self.assertTrue(below < sample.exemplar.value <= upto, sample)
                    self.assertGreater(sample.value, 0)
                    self.assertLess(abs(float(sample.exemplar.timestamp) - time.time()), 3600)
                    found.setdefault(family.name, set()).add(sample.exemplar.labels["trace_id"])
                below = upto if upto != float("inf") else 0
        self.assertEqual(set(found), self.NAMES)
        self.assertLessEqual(set.union(*found.values()), {"%032x" % (i + 1) for i in range(20)})

    def test_both_formats_have_the_same_samples(self):
        server = self.start("--batch-dir", self.enterContext(tempfile.TemporaryDirectory()))
        self.embed(server, "a dog")
        self.read(1)
        kind, plain = self.page(server, {})
        self.assertEqual(kind, "text/plain")
        self.assertNotIn(" # {", plain)
        _, page = self.page(server, OPENMETRICS)
        # clocks and the requests for this page itself
        moving = ("gpuserve_http", "gpuserve_device", "gpuserve_memory", "process_")

        def values(samples):
            # the parser of the plain format gives every counter a _total
            return {(sample.name.removesuffix("_total"), *sorted((key, float(value) if key == "le" else value) for key, value in sample.labels.items())):
                    None if sample.name.startswith(moving) else sample.value for sample in samples}

        self.assertEqual(values(self.samples(openmetrics_families(page))), values(self.samples(plain_families(plain))))
        kinds = {family.name: family.type for family in openmetrics_families(page)}
        self.assertEqual((kinds["gpuserve_traces_exported"], kinds["nv_inference_count"], kinds["gpuserve_request_seconds"]),
                         ("counter", "unknown", "histogram"))

    def test_negotiation(self):
        server = Server(TINY, "--device", "cpu", env=environment())
        self.addCleanup(server.stop)
        self.embed(server, "a", parent())
        for accepted, want in ((None, "text/plain"), ("*/*", "text/plain"), ("text/plain", "text/plain"),
                               ("application/openmetrics-text;q=0", "text/plain"), ("text/plain, application/openmetrics-text;q=0.5", "text/plain"),
                               ("application/openmetrics-text", "application/openmetrics-text"), (OPENMETRICS["Accept"], "application/openmetrics-text")):
            kind, page = self.page(server, {"Accept": accepted} if accepted else {})
            self.assertEqual((kind, page.endswith("# EOF\n")), (want, want != "text/plain"), accepted)
            self.assertNotIn(" # {", page)  # no traces, no exemplars
            self.assertNotIn("gpuserve_traces", page)
        self.assertTrue(list(openmetrics_families(page)))


if __name__ == "__main__":
    main(__name__)
