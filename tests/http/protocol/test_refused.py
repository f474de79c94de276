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
    ("/v2/embed", {"model": NAME, "texts": ["a"], "embedding_types": "float"}, "is no list"),
    ("/v2/embed", {"model": NAME, "texts": ["a"], "embedding_types": ["int8"]}, 'type \\"int8\\"'),
    ("/v2/embed", {"model": NAME, "texts": ["a"], "embedding_types": [1]}, "not offered"),
    ("/v2/embed", {"model": NAME, "texts": ["a"], "input_type": "image"}, "images cannot be"),
    ("/v1/embed", {"model": NAME, "images": ["data:image/png;base64,"]}, "`images` is not offered"),
    ("/v2/embed", {"model": NAME, "inputs": [{"content": [{"type": "text", "text": "a"}]}]}, "`inputs` is not offered"),
    ("/v2/embed", {"model": NAME, "texts": ["a"], "max_tokens": 0}, "`max_tokens` is 0"),
    ("/v2/embed", {"model": NAME, "texts": ["a"], "max_tokens": 2}, "special tokens alone are 2"),
    # Ollama
    ("/api/embeddings", {"model": NAME, "prompt": ["a"]}, "`prompt` is no text"),
    # text-embeddings-inference
    ("/embed", {"inputs": None}, "`inputs` is missing"),
    ("/embed", {"inputs": 7}, "neither a text nor a list"),
    ("/embed", {"inputs": [["a"], 5]}, "inputs"),
    ("/embed", {"inputs": ["a", [7], 5]}, "item 2 is neither a text nor a list of token ids"),
    ("/embed", {"inputs": "a", "prompt_name": "a\0b"}, "prompt_name"),
    ("/embed", b"", "the body is empty; JSON is expected"),
    ("/embed", b"[]", "the body is no JSON object"),
    ("/embed", b'{"inputs":"a"', "body: byte 13: expected a comma or a closing brace"),
    ("/embed_sparse", {"inputs": "a"}, "it is no masked language model"),
    ("/embed_all", {"inputs": ["a " * 250] * 180}, "numbers in one reply, at most"),
    ("/rerank", {"query": 1, "texts": ["a"]}, "`query` is no text"),
    ("/rerank", {"query": "", "texts": ["a"]}, "`query` cannot be empty"),
    ("/rerank", {"query": "a", "texts": "a"}, "`texts` is no list of texts"),
    ("/rerank", {"query": "a", "texts": ["a", 1]}, "item 1 is neither a text"),
    ("/similarity", {"inputs": {"source_sentence": 1, "sentences": ["a"]}}, "input 0 is no text"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": "a"}}, "is no list of texts"),
    ("/similarity", {"inputs": {"source_sentence": "a", "sentences": [""]}}, "cannot be empty"),
    # llama.cpp
    ("/tokenize", {"content": 7}, "`content` is no text"),
    # KServe
    (KSERVE, {"inputs": [without(TEXT, "name")]}, "an input needs a `name`"),
    (KSERVE, {"inputs": [without(TEXT, "datatype")]}, "an input needs a `name`"),
    (KSERVE, {"inputs": [{**TEXT, "shape": 1}]}, "no list of one or two sizes"),
    (KSERVE, {"inputs": [{**TEXT, "shape": []}]}, "no list of one or two sizes"),
    (KSERVE, {"inputs": [{**TEXT, "shape": [1.5]}]}, "size 0 of `shape`"),
    (KSERVE, {"inputs": [{**TEXT, "shape": [10000, 10000]}]}, "10000 times 10000 elements, at most"),
    (KSERVE, {"inputs": [{**TEXT, "parameters": {"binary_data_size": 1.5}}]}, "binary_data_size"),
    (KSERVE, {"inputs": [without(TEXT, "data")]}, "neither `data` nor"),
    (KSERVE, {"inputs": [TEXT, TEXT]}, "is given twice"),
    (KSERVE, {"inputs": [{**TEXT, "name": "PIXELS"}]}, "is not known"),
    (KSERVE, {"inputs": [{**TEXT, "parameters": {"binary_data_size": -1}}]}, "binary_data_size is -1"),
    (KSERVE, {"inputs": [TEXT, {**TEXT, "name": "TEXT_PAIR", "shape": [2], "data": ["a", "b"]}]},
     "has 2 texts, TEXT has 1"),
    (KSERVE, {"inputs": [TEXT, IDS]}, "TEXT and input_ids: give one"),
    (KSERVE, {"inputs": [IDS, {**MASK, "data": [1, "a"]}]}, "no whole number"),
    (KSERVE, {"inputs": [IDS, {**MASK, "data": [1, 1.5]}]}, "no whole number"),
    (KSERVE, {"inputs": [IDS, {**MASK, "shape": [2, 1]}]}, "attention_mask is [2,1], input_ids [1,2]"),
    (KSERVE, {"inputs": [TEXT], "outputs": [{"name": "logits"}]}, 'no output \\"logits\\"'),
    (KSERVE, {"inputs": [TEXT], "outputs": [{"name": 5}]}, "there is no output"),
    (KSERVE, {"inputs": [TEXT], "outputs": [{"name": "embedding"}] * 2}, "asked for twice"),
    (KSERVE, {"inputs": [TEXT], "outputs": [{"name": "embedding", "parameters": {"classification": 1}}]},
     "of the output scores"),
    (KSERVE, {"inputs": [TEXT], "outputs": [{"name": "embedding"}, {"name": "scores"}]},
     "need two requests"),
    (KSERVE, {"inputs": [TEXT], "outputs": {}}, "`outputs` is no list"),
    # Hugging Face
    ("/", {"inputs": "a", "parameters": {"candidate_labels": ["b", ""]}}, "item 1 is no text"),
    ("/", {"inputs": "a", "parameters": {"candidate_labels": [1]}}, "item 0 is no text"),
    ("/", {"inputs": ["a"], "parameters": {"candidate_labels": ["b"]}}, "`inputs` is one text"),
    ("/", {"inputs": "a", "parameters": {"candidate_labels": "b"}}, "a list of texts"),
    ("/", {"inputs": "a", "parameters": {"candidate_labels": ["b"], "hypothesis_template": "none"}},
     "with {} in it"),
    ("/", {"inputs": "a", "parameters": {"candidate_labels": ["b"], "hypothesis_template": "t" * 4095 + "{}"}},
     "`hypothesis_template` has 4097 bytes, at most 4096"),
    # tokens, each of which would be a hundred bytes of the reply
    ("/tokenize", {"inputs": "." * (1 << 22)}, "more than 4194304 tokens in one reply"),
    ("/tokenize", {"inputs": ["a", "." * ((1 << 22) - 4)]}, "more than 4194304 tokens in one reply"),
    ("/tokenize", {"content": "." * ((1 << 22) + 1)}, "more than 4194304 tokens in one reply"),
]


class Refused(Served):
    def test_cases(self):
        for path, body, words in CASES:
            reply = self.server.post(path, body)
            self.assertIn(reply.status, (400, 413, 422, 424), (path, body, reply.body))
            self.assertIn(words, reply.body.decode(), (path, body))
        # the server still serves
        self.assertEqual(self.server.post("/embed", {"inputs": "a"}).status, 200)

    def test_lengths_of_the_head(self):
        head = json.dumps({"inputs": [TEXT]})
        for given in ("1:", ":1", f"+{len(head)}", "0" * 18 + "9", f"{len(head)} ", "9" * 19):
            reply = self.server.post(KSERVE, head.encode(), {"Inference-Header-Content-Length": given})
            if given.strip() != str(len(head)):
                self.assertEqual(reply.status, 400, given)
                self.assertIn("the body has", reply.body.decode())


if __name__ == "__main__":
    main(__name__)
