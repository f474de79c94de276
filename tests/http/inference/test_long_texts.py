#!/usr/bin/env python3
"""The fields `chunking` and `late_chunking` of /v1/embeddings: the vectors of tests/data/long-texts, spans, and what is refused."""
import json
import os
import threading

from serving import Served, main

from common import ROOT

FOLDER = os.path.join(ROOT, "tests", "data", "long-texts")
MODEL = os.path.join(FOLDER, "model")
LONG = "The quick brown fox runs. It was red! " * 20


class LongTexts(Served):
    arguments = (MODEL, "--device", "cpu")

    def asked(self, text, **fields):
        reply = self.server.post("/v1/embeddings", {"input": text, **fields})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json()

    def near(self, got, want):
        self.assertEqual(len(got), len(want))
        self.assertLess(max(abs(a - b) for a, b in zip(got, want)), 1e-6)

    def test_equal_the_reference(self):
        with open(os.path.join(FOLDER, "reference.json"), encoding="utf-8") as file:
            cases = json.load(file)
        for case in cases:
            chunking = {key: case[key] for key in ("method", "chunk_tokens", "window_tokens", "stride", "spans") if key in case}
            if "chunk_by" in case:
                chunking["by"] = case["chunk_by"]
            reply = self.asked(case["text"], chunking=chunking, prompt_name=case["prompt_name"])
            data = reply["data"]
            spans = [one["span"] for one in data] if case["method"] == "late" else data[0]["spans"]
            self.assertEqual(spans, case["want_spans"])
            self.assertEqual([one["index"] for one in data], list(range(len(case["vectors"]))))
            for one, want in zip(data, case["vectors"]):
                self.near(one["embedding"], want)
            self.assertGreater(reply["usage"]["prompt_tokens"], 5)

    def test_several_inputs(self):
        data = self.asked(["A dog.", LONG, "A cat."], chunking={"method": "late", "by": "sentence"})["data"]
        self.assertEqual([one["input"] for one in data], [0] + 40 * [1] + [2])
        self.assertEqual(data[0]["tokens"], 3)
        self.near(data[-1]["embedding"], self.asked("A cat.")["data"][0]["embedding"])
        data = self.asked(["A dog.", LONG], chunking={"method": "window", "stride": 11})["data"]
        self.assertEqual(data[0]["spans"], [[0, 6]])
        self.assertEqual(data[1]["spans"][-1][1], len(LONG) - 1)
        data = self.asked(["A dog.", "A cat."], chunking={"method": "late", "by": "spans", "spans": [[[0, 1], [2, 6]], [[0, 6]]]})["data"]
        self.assertEqual([(one["input"], one["span"]) for one in data], [(0, [0, 1]), (0, [2, 6]), (1, [0, 6])])

    def test_jina(self):
        """The inputs are the chunks of one text."""
        parts = ["The quick brown fox runs.", "It was red!", "A dog."]
        data = self.asked(parts, late_chunking=True)["data"]
        self.assertEqual([sorted(one) for one in data], 3 * [["embedding", "index", "object"]])
        spans = [[0, 25], [26, 37], [38, 44]]
        want = self.asked(" ".join(parts), chunking={"method": "late", "by": "spans", "spans": spans})["data"]
        for one, other in zip(data, want):
            self.near(one["embedding"], other["embedding"])
        self.assertNotEqual(data[2]["embedding"], self.asked("A dog.")["data"][0]["embedding"])
        self.near(self.asked(["A dog."], late_chunking=True)["data"][0]["embedding"], self.asked("A dog.")["data"][0]["embedding"])

    def test_forms_of_vectors(self):
        chunking = {"method": "late", "chunk_tokens": 10}
        whole = self.asked(LONG, chunking=chunking)["data"]
        for options, n in (({"encoding_format": "int8"}, 32), ({"encoding_format": "ubinary"}, 4), ({"dimensions": 5}, 5)):
            data = self.asked(LONG, chunking=chunking, **options)["data"]
            self.assertEqual({len(one["embedding"]) for one in data}, {n})
            self.assertEqual([one["span"] for one in data], [one["span"] for one in whole])
        self.assertIsInstance(self.asked(LONG, chunking=chunking, encoding_format="base64")["data"][0]["embedding"], str)

    def test_hundred_kilobytes_at_the_same_time(self):
        text = (LONG * 140)[:100000]
        want = self.asked(text, chunking={"method": "late", "by": "sentence", "chunk_tokens": 100})["data"]
        found = {}

        def ask(i):
            found[i] = self.asked(text, chunking={"method": "late", "by": "sentence", "chunk_tokens": 100})["data"]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(found), 4)
        for data in found.values():
            self.assertEqual([one["span"] for one in data], [one["span"] for one in want])
            for one, other in zip(data, want):
                self.near(one["embedding"], other["embedding"])

    def test_a_client_that_leaves(self):
        import socket

        body = json.dumps({"input": (LONG * 140)[:100000], "chunking": {"method": "window", "stride": 3}}).encode()
        for _ in range(3):
            with socket.create_connection((self.server.host, self.server.port)) as gone:
                gone.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                             b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.near(self.asked("A dog.")["data"][0]["embedding"], self.asked("A dog.")["data"][0]["embedding"])

    def test_refused(self):
        late = {"method": "late"}
        for words, fields in (
                ("`chunking` has no `method`", {"chunking": {}}),
                ("`chunking` is not an object", {"chunking": "late"}),
                ("`chunking` holds `tokens`", {"chunking": {**late, "tokens": 3}}),
                ("`method`", {"chunking": {"method": "early"}}),
                ("`stride`", {"chunking": {**late, "stride": 0}}),
                ("`chunking`: text 0: stride is 23, more than the 22 tokens of the text in a window of 24", {"chunking": {**late, "stride": 23}}),
                ("window_tokens is 25, the model's limit is 24", {"chunking": {**late, "window_tokens": 25}}),
                ("need the method LATE", {"chunking": {"method": "window", "chunk_tokens": 3}}),
                ("`span_offsets` is NULL", {"chunking": {**late, "by": "spans"}}),
                ("not a list of two byte offsets", {"chunking": {**late, "by": "spans", "spans": [[0, 3, 5]]}}),
                ("not a list of two byte offsets", {"chunking": {**late, "by": "spans", "spans": [[0, -3]]}}),
                ("not a list of spans for each of the 1 inputs", {"chunking": {**late, "by": "spans", "spans": 3}}),
                ("spans[1] begins at byte 2", {"chunking": {**late, "by": "spans", "spans": [[0, 3], [2, 9]]}}),
                ("the text has 760 bytes", {"chunking": {**late, "by": "spans", "spans": [[0, 999]]}}),
                ("exclude each other", {"chunking": late, "late_chunking": True}),
                ("keep whole", {"chunking": late, "truncate_prompt_tokens": 8})):
            error = self.refused(400, words, "/v1/embeddings", {"input": LONG, **fields})["error"]
            self.assertEqual(error["type"], "invalid_request_error")
        self.refused(400, "`input`", "/v1/embeddings", {"input": [2, 5, 3], "chunking": late})


class OtherPooling(Served):
    arguments = (MODEL, "--device", "cpu", "--pooling", "cls")

    def test_late_chunking_needs_the_mean(self):
        self.refused(400, "late chunking averages token vectors", "/v1/embeddings", {"input": LONG, "chunking": {"method": "late"}})
        self.assertEqual(self.server.post("/v1/embeddings", {"input": LONG, "chunking": {"method": "window"}}).status, 200)


if __name__ == "__main__":
    main(__name__)
