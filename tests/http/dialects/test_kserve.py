"""The Open Inference Protocol by hand: what its clients never send."""
import gzip
import json
import os
import struct
import zlib

from serving import MINILM, Served, cosine, embed, main

from common import ROOT

PATH = "/v2/models/all-MiniLM-L6-v2/infer"


def text(values, **changes):
    return {"inputs": [{"name": "TEXT", "shape": [len(values)], "datatype": "BYTES", "data": values,
                        **changes}]}


def binary(*elements):
    return b"".join(struct.pack("<I", len(one)) + one for one in elements)


class Infer(Served):
    def ask(self, head, tail=b"", size=None):
        head = json.dumps(head).encode()
        return self.server.post(PATH, head + tail, {
            "Inference-Header-Content-Length": str(len(head) if size is None else size)})

    def test_plain_json(self):
        reply = self.server.post(PATH, text(["a dog"])).json()
        self.assertEqual(reply["outputs"][0]["shape"], [1, 384])
        self.assertVector(reply["outputs"][0]["data"], embed(["a dog"])[0])
        nested = self.server.post(PATH, text([["a dog"]], shape=[1, 1])).json()
        self.assertEqual(nested["outputs"], reply["outputs"])
        version = self.server.post("/v2/models/all-MiniLM-L6-v2/versions/1/infer", text(["a dog"]))
        self.assertEqual(version.json()["outputs"], reply["outputs"])

    def test_lies(self):
        tail = binary(b"a dog", b"a")
        good = {"name": "TEXT", "shape": [2], "datatype": "BYTES",
                "parameters": {"binary_data_size": len(tail)}}
        self.assertEqual(self.ask({"inputs": [good]}, tail).status, 200)
        for words, change, bytes_, size in (
                ("bytes are left", {"parameters": {"binary_data_size": len(tail) + 1}}, tail, None),
                ("binary_data_size", {"parameters": {"binary_data_size": -1}}, tail, None),
                ("follow the last tensor", {}, tail + b"x", None),
                ("end inside element 2", {"shape": [3]}, tail, None),
                ("bytes follow", {"shape": [1]}, tail, None),
                ("are left", {}, b"\xff\xff\xff\x7f" + tail[4:], None),
                ("is not UTF-8", {}, binary(b"a \xff\xfeb", b"a"), None),
                ("not BYTES", {"datatype": "FP32"}, tail, None),
                ("not BYTES", {"shape": [1, 2]}, tail, None),
                ("shape", {"shape": [1, 1, 2]}, tail, None),
                ("size 0 of `shape`", {"shape": [-1]}, tail, None),
                ("size 0 of `shape`", {"shape": [1 << 40]}, tail, None),
                ("the body has", {}, tail, 1 << 40), ("the body has", {}, tail, -1),
                ("body", {}, tail, 3), ("unknown input", {"name": "PIXELS"}, tail, None)):
            reply = self.ask({"inputs": [{**good, **change}]}, bytes_, size)
            self.assertEqual(reply.status, 400, (words, reply.body))
            self.assertIn(words, reply.json()["error"])

    def test_lies_about_ids(self):
        ids = {"name": "input_ids", "shape": [1, 4], "datatype": "INT64"}
        row = struct.pack("<4q", 101, 1037, 3899, 102)
        for size, status in ((32, 200), (31, 400), (24, 400), (16, 400)):
            head = {"inputs": [{**ids, "parameters": {"binary_data_size": size}}]}
            reply = self.ask(head, row[:size])
            self.assertEqual(reply.status, status, reply.body)
            self.assertTrue(status == 200 or "its shape needs 32" in reply.json()["error"], reply.body)

    def test_wrong_json(self):
        ids = {"name": "input_ids", "shape": [1, 2], "datatype": "INT64", "data": [101, 102]}
        self.assertEqual(self.server.post(PATH, {"inputs": [ids]}).status, 200)
        for status, words, body in (
                (400, "list of tensors", {}), (400, "neither", {"inputs": []}),
                (400, "data", text(["a"], data=None)), (400, "elements", text(["a"], shape=[2])),
                (400, "not a string", text([1])), (400, "cannot be empty", text([], shape=[0])),
                (400, "twice", {"inputs": text(["a"])["inputs"] * 2}),
                (400, "vocabulary", {"inputs": [{**ids, "data": [1, 99999999]}]}),
                (400, "whole number", {"inputs": [{**ids, "data": [1, 2.5]}]}),
                (400, "not INT64", {"inputs": [{**ids, "datatype": "FP32"}]}),
                (400, "both", {"inputs": [ids, *text(["a"])["inputs"]]}),
                (400, "attention_mask", {"inputs": [ids, {**ids, "name": "attention_mask",
                                                          "shape": [1, 1], "data": [1]}]}),
                (400, "no token ids", {"inputs": [ids, {**ids, "name": "attention_mask",
                                                        "data": [0, 0]}]}),
                (400, "`timeout`", {**text(["a"]), "parameters": {"timeout": "soon"}}),
                (400, "outputs", {**text(["a"]), "outputs": 1}),
                (501, "no classifier", {**text(["a"]), "outputs": [{"name": "labels"}]})):
            reply = self.server.post(PATH, body)
            self.assertEqual(reply.status, status, (words, reply.body))
            self.assertIn(words, reply.json()["error"])

    def test_a_mask(self):
        """Padding is left out at the end of each row; any other mask would lose tokens in silence."""
        def ask(*rows):
            shape, datatype = [len(rows), len(rows[0])], "INT64"
            ids = [[101, 1037, 3899, 102, 0, 0]] * len(rows)
            return self.server.post(PATH, {"inputs": [
                {"name": "input_ids", "shape": shape, "datatype": datatype, "data": ids},
                {"name": "attention_mask", "shape": shape, "datatype": datatype, "data": list(rows)}]})
        good = [1, 1, 1, 1, 0, 0]
        self.assertVector(ask(good).json()["outputs"][0]["data"], embed(["a dog"])[0])
        for row, words in (([1, 0, 1, 1, 0, 0], "row 1 has 0 at column 1 and 1 at column 2"),
                           ([0, 0, 1, 1, 1, 1], "row 1 has 0 at column 0 and 1 at column 2"),
                           ([1, 1, 1, 5, 0, 0], "row 1, column 3: 5 is neither 0 nor 1"),
                           ([1, 1, 1, 1, 0, -1], "row 1, column 5: -1 is neither 0 nor 1")):
            reply = ask(good, row)
            self.assertEqual(reply.status, 400, reply.body)
            self.assertIn("attention_mask: " + words, reply.json()["error"])

    def test_tensors_that_do_not_go_together(self):
        ids = {"name": "input_ids", "shape": [1, 2], "datatype": "INT64", "data": [101, 102]}
        for inputs, words in (
                ([*text(["a"])["inputs"], {**ids, "name": "attention_mask", "data": [1, 0]}], "only with input_ids"),
                ([ids, {**text(["a"])["inputs"][0], "name": "TEXT_PAIR"}], "TEXT_PAIR is valid only with TEXT")):
            self.refused(400, words, PATH, {"inputs": inputs})

    def test_what_is_not_offered(self):
        region = {"shared_memory_region": "r", "shared_memory_byte_size": 4}
        one = text(["a"])
        shared = {**one["inputs"][0], "parameters": region}
        del shared["data"]
        self.refused(400, 'tensor \\"TEXT\\": `shared_memory_region`', PATH, {"inputs": [shared]})
        self.refused(400, 'output \\"embedding\\": `shared_memory_region`', PATH,
                     {**one, "outputs": [{"name": "embedding", "parameters": region}]})
        for number in (1, "one"):
            self.refused(400, "`sequence_id`", PATH, {**one, "parameters": {"sequence_id": number}})
        self.assertEqual(self.server.post(PATH, {**one, "parameters": {"sequence_id": 0}}).status, 200)

    def test_binary_without_its_header(self):
        tail = binary(b"a dog")
        head = json.dumps({"inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES",
                                       "parameters": {"binary_data_size": len(tail)}}]}).encode()
        for body in (head + tail, head):
            self.refused(400, "need the header Inference-Header-Content-Length", PATH, body)
        self.refused(400, "raw binary request is empty", PATH, b"", {"Inference-Header-Content-Length": "0"})

    def test_a_long_text(self):
        long = text(["long " * 300])
        self.refused(400, "the text has 302 tokens", PATH, long)
        reply = self.server.post(PATH, {**long, "parameters": {"truncate": True}})
        self.assertEqual((reply.status, reply.headers["x-gpuserve-truncated"]), (200, "1"), reply.body)

    def test_paths(self):
        for path in ("/v2/models/other/infer", "/v2/models/all-MiniLM-L6-v2/versions/2/infer"):
            self.assertEqual(self.server.post(path, text(["a"])).status, 404)
        self.assertEqual(self.server.get("/v2/models/other/ready").status, 404)
        self.assertEqual(self.server.get(PATH).status, 405)
        self.assertEqual(self.server.get("/v2/nothing").json().keys(), {"error"})


class Load(Served):
    """A client cannot say how a model is loaded, and is told so."""
    arguments = (MINILM, "--model-control")

    def test_parameters(self):
        path = "/v2/repository/models/all-MiniLM-L6-v2/load"
        for name in ("config", "file:1/model.onnx"):
            self.refused(400, '`parameters` holds \\"%s\\"' % name, path, {"parameters": {name: "{}"}})
        self.refused(400, "body", path, b"{")
        for body in (b"", {}, {"parameters": {}}, {"parameters": {"unload_dependents": True}}):
            self.assertEqual(self.server.post(path, body).status, 200)


class SpecialTokens(Served):
    """Written in texts, and as token ids: the vectors of transformers, whatever the dialect. XLM-R counts no pad token
    inside a text and gives it the position before the first (tools/fixtures/make_specials_reference.py)."""
    MODEL = os.path.join(ROOT, "tests/data/models/st-xlm-roberta")
    PATH = "/v2/models/st-xlm-roberta/infer"
    arguments = (MODEL,)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with open(os.path.join(cls.MODEL, "specials.json"), encoding="utf-8") as file:
            cls.wanted = json.load(file)

    def assertNear(self, got, want, what):
        length = sum(x * x for x in want) ** 0.5
        self.assertLess(max(abs(x - y) for x, y in zip(got, want)), 1e-5 * length, what)

    def infer(self, *tensors):
        reply = self.server.post(self.PATH, {"inputs": list(tensors)})
        self.assertEqual(reply.status, 200, reply.body)
        output = reply.json()["outputs"][0]
        n, dim = output["shape"]
        return [output["data"][i * dim:(i + 1) * dim] for i in range(n)]

    def test_texts_in_one_batch_and_alone(self):
        texts, rows = self.wanted["texts"], self.wanted["embeddings"]
        together = self.infer(*text(texts)["inputs"])
        for one, got, want in zip(texts, together, rows):
            self.assertNear(got, want, one)
            self.assertEqual(self.infer(*text([one])["inputs"]), [got], one)

    def test_texts_by_other_dialects(self):
        for one, want in zip(self.wanted["texts"], self.wanted["embeddings"]):
            if "<pad>" in one:
                self.assertNear(self.server.post("/embed", {"inputs": one}).json()[0], want, one)
                row = self.server.post("/v1/embeddings", {"model": "st-xlm-roberta", "input": one}).json()["data"][0]
                self.assertGreater(cosine(row["embedding"], want), 0.999999, one)

    def test_token_ids(self):
        """Padded to the longest with the very id that is inside some of them: the mask tells them apart."""
        ids, width = self.wanted["ids"], max(map(len, self.wanted["ids"]))
        for datatype in ("INT64", "INT32"):
            def tensor(name, rows, fill, datatype=datatype):
                return {"name": name, "shape": [len(ids), width], "datatype": datatype,
                        "data": [row + [fill] * (width - len(row)) for row in rows]}
            rows = self.infer(tensor("input_ids", ids, 1), tensor("attention_mask", [[1] * len(one) for one in ids], 0))
            for one, got, want in zip(self.wanted["texts"], rows, self.wanted["embeddings"]):
                self.assertNear(got, want, one)

    def test_token_ids_without_a_mask(self):
        """Each id counts, pads too, as in transformers without a mask."""
        for one, ids, want in zip(*(self.wanted[key] for key in ("texts", "ids", "embeddings"))):
            got, = self.infer({"name": "input_ids", "shape": [1, len(ids)], "datatype": "INT64", "data": ids})
            self.assertNear(got, want, one)


class Compressed(Served):
    arguments = (MINILM, "--max-body-bytes", 100000)

    def post(self, body, encoding="gzip"):
        return self.server.post("/embed", body, {"Content-Encoding": encoding})

    def test_good(self):
        body = json.dumps({"inputs": "a dog"}).encode()
        for encoding, packed in (("gzip", gzip.compress(body)), ("X-GZIP", gzip.compress(body)), ("deflate", zlib.compress(body)),
                                 ("identity", body)):
            reply = self.post(packed, encoding)
            self.assertEqual(reply.status, 200, reply.body)
            self.assertVector(reply.json()[0], embed(["a dog"])[0])

    def test_bomb(self):
        reply = self.post(gzip.compress(b" " * 50_000_000))
        self.assertEqual(reply.status, 413)
        self.assertIn("--max-body-bytes", reply.json()["error"])

    def test_broken(self):
        good = gzip.compress(json.dumps({"inputs": "a dog"}).encode())
        for body, words in ((good[:-9], "truncated"), (good[:12], "truncated"), (b"no gzip", "is corrupt"),
                            (good + good, "data follows"), (good[:15] + b"\0" + good[16:], "is corrupt")):
            reply = self.post(body)
            self.assertEqual(reply.status, 400)
            self.assertIn(words, reply.json()["error"])
        self.assertEqual(self.post(good, "br").status, 415)


if __name__ == "__main__":
    main(__name__)
