"""Requests with one thing wrong in them: refused with what is wrong, whatever the dialect."""
import json

from serving import Served, main

NAME = "all-MiniLM-L6-v2"
KSERVE = f"/v2/models/{NAME}/infer"
TEXT = {"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["a"]}
IDS = {"name": "input_ids", "shape": [1, 2], "datatype": "INT64", "data": [101, 102]}
MASK = {"name": "attention_mask", "shape": [1, 2], "datatype": "INT64", "data": [1, 1]}


def without(tensor, name):
    return {key: value for key, value in tensor.items() if key != name}


# path, body, words of the answer
CASES = [
    # Cohere
    ("/v2/embed", {"model": NAME, "texts": ["a"], "embedding_types": "float"}, "is not a list"),
    ("/v2/embed", {"model": NAME, "texts": ["a"], "embedding_types": ["int3"]}, 'type \\"int3\\"'),
    ("/v2/embed", {"model": NAME, "texts": ["a"], "embedding_types": [1]}, "not supported"),
    ("/v2/embed", {"model": NAME, "texts": ["a"], "input_type": "image"}, "image input is not"),
    ("/v1/embed", {"model": NAME, "images": ["data:image/png;base64,"]}, "`images` is not supported"),
    ("/v2/embed", {"model": NAME, "inputs": [{"content": [{"type": "text", "text": "a"}]}]}, "`inputs` is not supported"),
    ("/v2/embed", {"model": NAME, "texts": ["a"], "max_tokens": 0}, "`max_tokens` is 0"),
    ("/v2/embed", {"model": NAME, "texts": ["a"], "max_tokens": 2}, "but the model adds 2 special tokens"),
    # Ollama
    ("/api/embeddings", {"model": NAME, "prompt": ["a"]}, "`prompt` is not a string"),
    # text-embeddings-inference
    ("/embed", {"inputs": None}, "`inputs` is missing"),
    ("/embed", {"inputs": 7}, "neither a string nor a list"),
    ("/embed", {"inputs": [["a"], 5]}, "inputs"),
    ("/embed", {"inputs": ["a", [7], 5]}, "item 2 is neither a string nor a list of token ids"),
    ("/embed", {"inputs": "a", "prompt_name": "a\0b"}, "prompt_name"),
    ("/embed", b"", "the body is empty, expected JSON"),
    ("/embed", b'\xef\xbb\xbf{"inputs":"a"}', "UTF-8 byte order mark (EF BB BF)"),
    ("/v1/embeddings", b'\xef\xbb\xbf{"input":"a"}', "UTF-8 byte order mark (EF BB BF)"),
    ("/embed", b"[]", "the body is not a JSON object"),
    ("/embed", b'{"inputs":"a"', "body: byte 13: expected a comma or a closing brace"),
    ("/embed_sparse", {"inputs": "a"}, "it is not a masked language model"),
    ("/embed_all", {"inputs": ["a " * 250] * 180}, "numbers, the limit is"),
    ("/rerank", {"query": 1, "texts": ["a"]}, "`query` is not a string"),
    ("/rerank", {"query": "", "texts": ["a"]}, "`query` cannot be empty"),
    ("/rerank", {"query": "a", "texts": "a"}, "`texts` is not a list of strings"),
    ("/rerank", {"query": "a", "texts": ["a", 1]}, "item 1 is neither a string"),
    ("/similarity", {"inputs": {"source_sentence": 1, "sentences": ["a"]}}, "input 0 is not a string"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": "a"}}, "is not a list of strings"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": [""]}}, "cannot be empty"),
    # llama.cpp
    ("/tokenize", {"content": 7}, "`content` is not a string"),
    # KServe
    (KSERVE, {"inputs": [without(TEXT, "name")]}, "an input needs a `name`"),
    (KSERVE, {"inputs": [without(TEXT, "datatype")]}, "an input needs a `name`"),
    (KSERVE, {"inputs": [{**TEXT, "shape": 1}]}, "not a list of one or two sizes"),
    (KSERVE, {"inputs": [{**TEXT, "shape": []}]}, "not a list of one or two sizes"),
    (KSERVE, {"inputs": [{**TEXT, "shape": [1.5]}]}, "size 0 of `shape`"),
    (KSERVE, {"inputs": [{**TEXT, "shape": [10000, 10000]}]}, "10000 x 10000 elements, the limit is"),
    (KSERVE, {"inputs": [{**TEXT, "parameters": {"binary_data_size": 1.5}}]}, "binary_data_size"),
    (KSERVE, {"inputs": [without(TEXT, "data")]}, "neither `data` nor"),
    (KSERVE, {"inputs": [TEXT, TEXT]}, "is given twice"),
    (KSERVE, {"inputs": [{**TEXT, "name": "PIXELS"}]}, "unknown input"),
    (KSERVE, {"inputs": [{**TEXT, "parameters": {"binary_data_size": -1}}]}, "binary_data_size is -1"),
    (KSERVE, {"inputs": [TEXT, {**TEXT, "name": "TEXT_PAIR", "shape": [2], "data": ["a", "b"]}]},
     "has 2 texts, TEXT has 1"),
    (KSERVE, {"inputs": [TEXT, IDS]}, "TEXT and input_ids are given: send one"),
    (KSERVE, {"inputs": [IDS, {**MASK, "data": [1, "a"]}]}, "not a whole number"),
    (KSERVE, {"inputs": [IDS, {**MASK, "data": [1, 1.5]}]}, "not a whole number"),
    (KSERVE, {"inputs": [IDS, {**MASK, "shape": [2, 1]}]}, "attention_mask is [2,1], input_ids [1,2]"),
    (KSERVE, {"inputs": [TEXT], "outputs": [{"name": "logits"}]}, 'unknown output \\"logits\\"'),
    (KSERVE, {"inputs": [TEXT], "outputs": [{"name": 5}]}, "unknown output"),
    (KSERVE, {"inputs": [TEXT], "outputs": [{"name": "embedding"}] * 2}, "requested twice"),
    (KSERVE, {"inputs": [TEXT], "outputs": [{"name": "embedding", "parameters": {"classification": 1}}]},
     "for the output scores"),
    (KSERVE, {"inputs": [TEXT], "outputs": [{"name": "embedding"}, {"name": "scores"}]},
     "send two requests"),
    (KSERVE, {"inputs": [TEXT], "outputs": {}}, "`outputs` is not a list"),
    # Hugging Face
    ("/", {"inputs": "a", "parameters": {"candidate_labels": ["b", ""]}}, "item 1 is not a string"),
    ("/", {"inputs": "a", "parameters": {"candidate_labels": [1]}}, "item 0 is not a string"),
    ("/", {"inputs": ["a"], "parameters": {"candidate_labels": ["b"]}}, "`inputs` must be a string"),
    ("/", {"inputs": "a", "parameters": {"candidate_labels": "b"}}, "a list of strings"),
    ("/", {"inputs": "a", "parameters": {"candidate_labels": ["b"], "hypothesis_template": "none"}},
     "with {} in it"),
    ("/", {"inputs": "a", "parameters": {"candidate_labels": ["b"], "hypothesis_template": "t" * 4095 + "{}"}},
     "`hypothesis_template` has 4097 bytes, the limit is 4096"),
    # tokens, each of which would be a hundred bytes of the reply
    ("/tokenize", {"inputs": "." * (1 << 22)}, "exceeds 4194304 tokens"),
    ("/tokenize", {"inputs": ["a", "." * ((1 << 22) - 4)]}, "exceeds 4194304 tokens"),
    ("/tokenize", {"content": "." * ((1 << 22) + 1)}, "exceeds 4194304 tokens"),
]


class Refused(Served):
    def test_cases(self):
        for path, body, words in CASES:
            reply = self.server.post(path, body)
            self.assertIn(reply.status, (400, 413, 422, 424), (path, body, reply.body))
            self.assertIn(words, reply.body.decode(), (path, body))
        # the server still serves
        self.assertEqual(self.server.post("/embed", {"inputs": "a"}).status, 200)

    def test_an_invalid_path_has_the_words_of_its_route(self):
        for path, is_openai in (("/openai/deployments/a%0C/embeddings", True), ("/v1/embeddings%0C", True), ("/embed%0C", False)):
            reply = self.server.post(path, {"input": "a"})
            self.assertEqual(reply.status, 400)
            error = reply.json()["error"]
            self.assertEqual(error["message"] if is_openai else error, "the path is not valid")

    def test_lengths_of_the_head(self):
        head = json.dumps({"inputs": [TEXT]})
        for given in ("1:", ":1", f"+{len(head)}", "0" * 18 + "9", f"{len(head)} ", "9" * 19):
            reply = self.server.post(KSERVE, head.encode(), {"Inference-Header-Content-Length": given})
            if given.strip() != str(len(head)):
                self.assertEqual(reply.status, 400, given)
                self.assertIn("the body has", reply.body.decode())


if __name__ == "__main__":
    main(__name__)
