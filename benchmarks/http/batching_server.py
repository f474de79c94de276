#!/usr/bin/env python3
"""A batching Python server at its best: uvicorn with uvloop and httptools, orjson, a queue, ONNX
Runtime.

batching_server.py MODEL GRAPH PORT [WORKERS] [BATCH]

POST /v1/embeddings {"input": TEXT or [TEXT...], "encoding_format": "base64" or none}. Requests that wait while a batch is computed make
the next one, sorted by length, BATCH texts at most (default 32); tokenizing and computing run in parallel to
the event loop. WORKERS batches are computed side by side (default 1), on 2 / WORKERS threads each.
"""
import asyncio
import base64
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import orjson
import tokenizers
import uvicorn

THREADS = 2


class Embedder:
    def __init__(self, model, graph, threads):
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self.session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        self.tokenizer = tokenizers.Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
        self.tokenizer.enable_truncation(256)
        self.tokenizer.enable_padding()

    def run(self, texts):
        encoded = self.tokenizer.encode_batch(texts)
        ids = np.array([one.ids for one in encoded], np.int64)
        mask = np.array([one.attention_mask for one in encoded], np.int64)
        hidden = self.session.run(None, {"input_ids": ids, "attention_mask": mask,
                                         "token_type_ids": np.zeros_like(ids)})[0]
        weights = mask[:, None, :].astype(np.float32)
        vectors = np.matmul(weights, hidden)[:, 0]  # the length cancels out
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors, mask.sum(1).tolist()


class Batcher:
    def __init__(self, embedder, workers, most):
        self.embedder, self.workers, self.most, self.waiting = embedder, workers, most, []
        self.some, self.pool = asyncio.Event(), ThreadPoolExecutor(workers)

    async def embed(self, texts):
        futures = []
        for text in texts:
            futures.append(asyncio.get_running_loop().create_future())
            self.waiting.append((text, futures[-1]))
        self.some.set()
        return await asyncio.gather(*futures)

    async def work(self):
        loop = asyncio.get_running_loop()
        while True:
            await self.some.wait()
            self.waiting.sort(key=lambda one: len(one[0]))
            batch, self.waiting = self.waiting[:self.most], self.waiting[self.most:]
            if not self.waiting:
                self.some.clear()
            if not batch:
                continue
            vectors, sizes = await loop.run_in_executor(self.pool, self.embedder.run,
                                                        [text for text, _ in batch])
            for (_, future), vector, size in zip(batch, vectors, sizes):
                if not future.cancelled():
                    future.set_result((vector, size))


class Application:
    def __init__(self, batcher):
        self.batcher, self.tasks = batcher, []

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        if not self.tasks:
            self.tasks = [asyncio.create_task(self.batcher.work())
                          for _ in range(self.batcher.workers)]
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        reply = b"{}"
        if scope["method"] == "POST":
            request = orjson.loads(body)
            texts, packed = request["input"], request.get("encoding_format") == "base64"
            rows = await self.batcher.embed([texts] if isinstance(texts, str) else texts)
            n_tokens = sum(size for _, size in rows)
            reply = orjson.dumps({
                "object": "list", "model": "all-MiniLM-L6-v2",
                "data": [{"object": "embedding", "index": i, "embedding": base64.b64encode(vector).decode() if packed else vector}
                         for i, (vector, _) in enumerate(rows)],
                "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens}},
                option=orjson.OPT_SERIALIZE_NUMPY)
        await send({"type": "http.response.start", "status": 200, "headers": [
            (b"content-type", b"application/json"), (b"content-length", b"%d" % len(reply))]})
        await send({"type": "http.response.body", "body": reply})


def main():
    model, graph, port = sys.argv[1:4]
    workers, most = (int(one) for one in (sys.argv[4:6] + ["1", "32"][len(sys.argv[4:6]):]))
    batcher = Batcher(Embedder(model, graph, max(1, THREADS // workers)), workers, most)
    uvicorn.run(Application(batcher), host="127.0.0.1", port=int(port), log_level="error",
                lifespan="off", loop="uvloop", http="httptools", access_log=False)


if __name__ == "__main__":
    main()
