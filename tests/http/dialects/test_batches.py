"""OpenAI's Batch API by the `openai` package, unmodified: nothing twice, nothing lost."""
import collections
import io
import json
import os
import shutil
import signal
import tempfile
import time
import unittest

from serving import MINILM, PATIENCE, Server, embed, figure, main, use_clients

use_clients()

import openai  # noqa: E402

NAME = "all-MiniLM-L6-v2"
ENDED = ("completed", "failed", "expired", "cancelled")


def line(custom_id, text="a dog", url="/v1/embeddings", **body):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": {"model": NAME, "input": text, **body}}


def jsonl(lines):
    return "".join(json.dumps(one) + "\n" for one in lines).encode()


class Batches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "batches")
        self.server = None

    def start(self, *arguments, key="none"):
        self.server = Server(MINILM, "--device", "cpu", "--batch-dir", self.folder, *arguments)
        self.addCleanup(self.server.stop)
        return self.client(key)

    def client(self, key="none"):
        return openai.OpenAI(base_url=self.server.url + "/v1", api_key=key, max_retries=0)

    def upload(self, client, lines, **options):
        data = lines if isinstance(lines, bytes) else jsonl(lines)
        return client.files.create(file=("in.jsonl", io.BytesIO(data)), purpose="batch", **options)

    def create(self, client, lines, window="24h", **options):
        file = self.upload(client, lines)
        return client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window=window, **options)

    def wait(self, client, batch, until=ENDED):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            batch = client.batches.retrieve(batch.id)
            if batch.status in until:
                return batch
            time.sleep(0.02)
        raise AssertionError(batch)

    def wait_for_lines(self, client, batch, n):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if client.batches.retrieve(batch.id).request_counts.completed >= n:
                return
            time.sleep(0.02)
        raise AssertionError(batch)

    def lines_of(self, client, file_id):
        return [json.loads(one) for one in client.files.content(file_id).text.splitlines()] if file_id else []

    def results(self, client, batch):
        return self.lines_of(client, batch.output_file_id), self.lines_of(client, batch.error_file_id)

    def check_once(self, lines, *results):
        """Each line of the input has one result."""
        counts = collections.Counter(one["custom_id"] for part in results for one in part)
        self.assertEqual(counts, collections.Counter(one["custom_id"] for one in lines))

    def test_the_documented_example(self):
        client = self.start()
        texts = ["a dog", "Une phrase.", "zwei\nZeilen"]
        lines = [*(line("line %d" % i, text) for i, text in enumerate(texts)), line("other", model="none"), line("empty", "")]
        file = self.upload(client, lines)
        self.assertEqual((file.object, file.filename, file.purpose, file.status, file.bytes),
                         ("file", "in.jsonl", "batch", "processed", len(jsonl(lines))))
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h",
                                      metadata={"job": "nightly"})
        self.assertEqual((batch.object, batch.endpoint, batch.completion_window, batch.metadata, batch.output_file_id),
                         ("batch", "/v1/embeddings", "24h", {"job": "nightly"}, None))
        self.assertEqual(batch.expires_at - batch.created_at, 86400)
        batch = self.wait(client, batch)
        self.assertEqual(batch.status, "completed", batch)
        self.assertEqual((batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed), (5, 3, 2))
        self.assertTrue(batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at)
        good, bad = self.results(client, batch)
        self.check_once(lines, good, bad)
        for text, want, one in zip(texts, embed(texts), sorted(good, key=lambda one: one["custom_id"])):
            self.assertEqual((one["error"], one["response"]["status_code"]), (None, 200), text)
            self.assertEqual(one["response"]["body"]["data"][0]["embedding"], want)
        self.assertEqual({one["custom_id"]: one["response"]["status_code"] for one in bad}, {"other": 404, "empty": 400})
        self.assertEqual(bad[0]["response"]["body"]["error"]["type"], "invalid_request_error")
        output = client.files.retrieve(batch.output_file_id)
        self.assertEqual((output.purpose, output.filename), ("batch_output", batch.id + "_output.jsonl"))
        self.assertEqual(figure(self.server, "gpuserve_http_batch_lines_total"), 3)
        self.assertEqual(figure(self.server, "gpuserve_http_batch_failed_lines_total"), 2)

    def test_lists(self):
        client = self.start()
        files = [self.upload(client, [line(str(i))]) for i in range(5)]
        self.assertEqual([one.id for one in client.files.list(limit=2, order="asc")], [one.id for one in files])
        self.assertEqual([one.id for one in client.files.list(order="desc", after=files[2].id)], [files[1].id, files[0].id])
        self.assertEqual(list(client.files.list(purpose="batch_output")), [])
        batches = [client.batches.create(input_file_id=one.id, endpoint="/v1/embeddings", completion_window="24h") for one in files]
        self.assertEqual([one.id for one in client.batches.list(limit=2)], [one.id for one in reversed(batches)])
        self.wait(client, batches[-1])
        deleted = client.files.delete(files[0].id)
        self.assertTrue(deleted.deleted)
        for call in (client.files.retrieve, client.files.delete, client.files.content):
            with self.assertRaisesRegex(openai.NotFoundError, "No such File object: " + files[0].id):
                call(files[0].id)

    def test_an_input_that_is_not_valid(self):
        client = self.start()
        text = jsonl([line("a"), line("a"), line("b", url="/v1/chat/completions"), {**line("c"), "method": "GET"},
                      {"custom_id": "d"}, line("e")]) + b"{\n[]\n"
        batch = self.wait(client, self.create(client, text))
        self.assertEqual((batch.status, batch.output_file_id, batch.error_file_id), ("failed", None, None))
        self.assertEqual(sorted((one.line, one.code) for one in batch.errors.data), [
            (2, "duplicate_custom_id"), (3, "invalid_url"), (4, "invalid_method"), (5, "missing_required_parameter"),
            (7, "invalid_json_line"), (8, "invalid_json_line")])
        batch = self.wait(client, self.create(client, b"\n\n"))
        self.assertEqual([one.code for one in batch.errors.data], ["empty_file"])
        batch = self.wait(client, self.create(client, b'{"custom_id":"x"}\n' * 50002))
        self.assertEqual(len(batch.errors.data), 20)

    def test_errors_name_the_limit(self):
        client = self.start("--batch-disk", "1MB", "--max-body-bytes", "3000000")
        for words, call in (
                ("'purpose' is a required", lambda: client.files.create(file=("a", b"{}"), purpose="")),
                ('only files of "batch"', lambda: client.files.create(file=("a", b"{}"), purpose="fine-tune")),
                ("File is empty", lambda: self.upload(client, b"")),
                ("byte order mark", lambda: self.upload(client, b"\xef\xbb\xbf{}")),
                ("outside 3600 to 2592000", lambda: self.upload(client, b"{}", expires_after={"anchor": "created_at", "seconds": 1})),
                ("No such File object: file-x", lambda: client.batches.create(
                    input_file_id="file-x", endpoint="/v1/embeddings", completion_window="24h")),
                ("not one of /v1/embeddings", lambda: client.batches.create(
                    input_file_id="file-x", endpoint="/v1/batches", completion_window="24h")),
                ("a duration from 1s to 14d", lambda: self.create(client, [line("a")], window="soon")),
                ("at most 16 fields", lambda: self.create(client, [line("a")], metadata={str(i): "" for i in range(17)})),
                ("`anchor` is not a string", lambda: self.create(client, [line("a")], extra_body={
                    "output_expires_after": {"anchor": 1, "seconds": 3600}})),
                ('"asc" nor "desc"', lambda: client.files.list(order="up")),
                ("not 1 to 100", lambda: client.batches.list(limit=101))):
            with self.assertRaisesRegex(openai.BadRequestError, words):
                call()
        with self.assertRaises(openai.APIStatusError) as caught:
            self.upload(client, b"x" * 1100000)
        self.assertEqual((caught.exception.status_code, caught.exception.code), (413, "storage_limit_exceeded"))
        self.assertIn("the limit of 1000000 bytes (--batch-disk)", str(caught.exception))
        with self.assertRaisesRegex(openai.APIStatusError, "--max-body-bytes"):
            self.upload(client, b"x" * 3100000)
        with self.assertRaisesRegex(openai.NotFoundError, "No batch found with id 'batch_x'"):
            client.batches.retrieve("batch_x")
        reply = self.server.request("POST", "/v1/files", b"{}", {"Content-Type": "application/json"})
        self.assertEqual((reply.status, "multipart/form-data" in reply.body.decode()), (415, True))

    def test_forms(self):
        """multipart/form-data by the byte."""
        self.start()

        def send(body, boundary="b"):
            return self.server.request("POST", "/v1/files", body, {"Content-Type": "multipart/form-data; boundary=" + boundary})

        def part(name, value, more=""):
            return ('--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (name, more, value)).encode()

        good = part("purpose", "batch") + part("file", "{}", '; filename="a.jsonl"')
        self.assertEqual(send(good + b"--b--\r\n").status, 200)
        self.assertEqual(send(good + b"--b--", '"b"').status, 200)
        for words, body in (("no boundary after it", good + b"--c--"), ("does not begin with the boundary", b"x" + good + b"--b--"),
                            ("'file' is a required", part("purpose", "batch") + b"--b--"), ("unknown field", part("x", "") + b"--b--"),
                            ("more than one `purpose`", part("purpose", "batch") + good + b"--b--"),
                            ("more than one `file`", good + part("file", "{}", '; filename="b"') + b"--b--"),
                            ("is \\\"3600s\\\", not a whole number", part("expires_after[anchor]", "created_at") + part("expires_after[seconds]", "3600s") + good + b"--b--"),
                            ("is \\\"\\\", not a whole number", part("expires_after[anchor]", "created_at") + good + b"--b--"),
                            ("more than 31 bytes, or a NUL", part("purpose", "batch\0") + b"--b--"),
                            ("has no name", b"--b\r\nX: y\r\n\r\n\r\n--b--"), ("has no end", b"--b\r\nX: " + b"y" * 5000),
                            ("does not end in CR LF", b"--bxyz"), ("does not begin", b""),
                            ("the filename has not 1 to 255", part("purpose", "batch") + part("file", "{}", '; filename="%s"' % ("a" * 256)) + b"--b--"),
                            ("Content-Transfer-Encoding", b'--b\r\nContent-Disposition: form-data; name="file"\r\nContent-Transfer-Encoding: base64\r\n\r\n\r\n--b--')):
            reply = send(body)
            self.assertEqual(reply.status, 400, reply.body)
            self.assertIn(words, reply.body.decode())

    def test_a_server_without_a_directory(self):
        self.server = Server(MINILM, "--device", "cpu")
        self.addCleanup(self.server.stop)
        client = self.client()
        for call in (client.files.list, client.batches.list, lambda: self.upload(client, b"{}")):
            with self.assertRaisesRegex(openai.BadRequestError, "--batch-dir"):
                call()

    def at(self, name):
        return os.path.join(self.folder, name)

    def tear(self, batch):
        """What a power failure leaves: half a result, half a record, half an upload. False: the batch had ended,
        so that no result could be cut off."""
        with open(self.at(batch.id + ".json"), encoding="utf-8") as file:
            record = json.load(file)
        if record["status"] in ENDED:
            return False
        with open(self.at(record["outputs"][0]), "ab") as file:
            file.write(b'{"id":"batch_req_' + batch.id[6:].encode() + b'00000001","custom_id":"line 1","resp')
        for name in (batch.id + ".tmp", "file-" + "0" * 24):
            with open(self.at(name), "wb") as file:
                file.write(b"{")
        return True

    def test_a_kill_loses_and_repeats_nothing(self):
        client, n_lines, interrupted = self.start(), 1500, 0
        while interrupted < 2: # on a busy machine a batch may end before the signal
            self.assertLess(n_lines, 50000, "no kill met a running batch")
            lines = [line("line %d" % i, ["a dog %d" % i, "a cat %d" % i]) for i in range(n_lines)]
            lines[700]["body"]["input"] = ""
            batch = self.create(client, lines)
            for n in (100, 400):
                self.wait_for_lines(client, batch, n)
                self.server.stop(signal.SIGKILL)
                interrupted += self.tear(batch)
                client = self.start()
                self.assertIn(client.batches.retrieve(batch.id).status, ("in_progress", "finalizing", "completed"))
                self.assertFalse(os.path.exists(self.at("file-" + "0" * 24)))
            batch = self.wait(client, batch)
            self.assertEqual((batch.status, batch.request_counts.completed, batch.request_counts.failed),
                             ("completed", n_lines - 1, 1), batch)
            good, bad = self.results(client, batch)
            self.check_once(lines, good, bad)
            self.assertEqual([one["custom_id"] for one in bad], ["line 700"])
            self.assertEqual(len({one["id"] for one in good}), len(good))
            n_lines *= 2

    def test_a_drain_leaves_the_rest_for_later(self):
        client = self.start()
        lines = [line("line %d" % i, ["a dog %d" % i] * 4) for i in range(1000)]
        batch = self.create(client, lines)
        self.wait_for_lines(client, batch, 50)
        self.assertEqual(self.server.stop()[0], 0)
        client = self.start()
        batch = self.wait(client, batch)
        self.assertEqual(batch.status, "completed")
        self.check_once(lines, *self.results(client, batch))

    def test_cancel(self):
        client = self.start()
        lines = [line("line %d" % i, ["a dog %d" % i] * 20) for i in range(2000)]
        batch = self.create(client, lines)
        waiting = self.create(client, [line("a")])
        self.wait_for_lines(client, batch, 10)
        with self.assertRaisesRegex(openai.ConflictError, "which has not ended: cancel it first"):
            client.files.delete(batch.input_file_id)
        self.assertEqual(client.batches.cancel(batch.id).status, "cancelling")
        batch = self.wait(client, batch)
        self.assertEqual(batch.status, "cancelled")
        self.assertTrue(batch.cancelling_at <= batch.cancelled_at)
        good, rest = self.results(client, batch)
        self.check_once(lines, good, rest)
        self.assertTrue(good and rest)
        self.assertEqual({one["error"]["code"] for one in rest}, {"batch_cancelled"})
        self.assertEqual({one["response"] for one in rest if not one["error"]}, set())
        self.assertEqual((batch.request_counts.completed, batch.request_counts.failed), (len(good), 0))
        with self.assertRaisesRegex(openai.ConflictError, "Cannot cancel a batch with status 'cancelled'"):
            client.batches.cancel(batch.id)
        self.assertEqual(self.wait(client, waiting).status, "completed")
        client.files.delete(batch.input_file_id)

    def test_expiry(self):
        client = self.start()
        lines = [line("line %d" % i, ["a dog %d" % i] * 40) for i in range(4000)]
        batch = self.wait(client, self.create(client, lines, window="2s"))
        self.assertEqual(batch.status, "expired")
        good, rest = self.results(client, batch)
        self.check_once(lines, good, rest)
        self.assertEqual({one["error"]["code"] for one in rest}, {"batch_expired"})

    def test_a_full_directory_keeps_what_is_finished(self):
        client = self.start("--batch-disk", "300KB")
        lines = [line("line %d" % i, "a dog %d" % i) for i in range(400)]
        batch = self.wait(client, self.create(client, lines))
        self.assertEqual((batch.status, batch.errors.data[0].code), ("failed", "storage_limit_exceeded"), batch)
        self.assertIn("--batch-disk", batch.errors.data[0].message)
        good, _ = self.results(client, batch)
        self.assertEqual(batch.request_counts.completed, len(good))
        self.assertGreater(len(good), 5)
        size = sum(os.path.getsize(self.at(name)) for name in os.listdir(self.folder) if "." not in name)
        self.assertLessEqual(size, 300000)
        self.assertEqual(figure(self.server, "gpuserve_http_batch_disk_bytes"), size)
        client.files.delete(batch.output_file_id)
        self.assertEqual(self.wait(client, self.create(client, lines[:5])).status, "completed")

    def test_keys_see_their_own(self):
        one, two = self.start("--api-key", "one", "--api-key", "two", key="one"), self.client("two")
        batch = self.create(one, [line("a")])
        for call in (lambda: two.files.retrieve(batch.input_file_id), lambda: two.files.delete(batch.input_file_id),
                     lambda: two.batches.retrieve(batch.id), lambda: two.batches.cancel(batch.id)):
            self.assertRaises(openai.NotFoundError, call)
        self.assertEqual((list(two.files.list()), list(two.batches.list())), ([], []))
        with self.assertRaisesRegex(openai.BadRequestError, "No such File"):
            two.batches.create(input_file_id=batch.input_file_id, endpoint="/v1/embeddings", completion_window="24h")
        batch = self.wait(one, batch)
        self.assertRaises(openai.NotFoundError, two.files.content, batch.output_file_id)
        self.assertEqual(len(self.lines_of(one, batch.output_file_id)), 1)

    def test_requests_go_first(self):
        """A batch fills the queue of its own class only: others wait for a computed batch, not for all."""
        client = self.start("--queue-tokens", "4000")
        lines = [line("line %d" % i, ["a dog %d" % i] * 100) for i in range(200)]
        batch = self.create(client, lines)
        self.wait_for_lines(client, batch, 1)
        want = embed(["a cat"])[0]
        for _ in range(5):
            got = client.embeddings.create(model=NAME, input="a cat", encoding_format="float").data[0].embedding
            self.assertLess(max(abs(a - b) for a, b in zip(got, want)), 1e-6)
        self.assertNotIn(client.batches.retrieve(batch.id).status, ENDED)
        batch = self.wait(client, batch)
        self.check_once(lines, *self.results(client, batch))
        self.assertEqual(batch.request_counts.failed, 0)  # a full queue is no result

    def test_a_directory_that_is_gone(self):
        """The log has the path, the client has not."""
        client = self.start()
        file = self.upload(client, [line("a")])
        os.remove(self.at(file.id))
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
        errors = self.wait(client, batch).errors.data
        self.assertEqual([(one.code, "its log says why" in one.message, self.folder in one.message) for one in errors],
                         [("server_error", True, False)])
        shutil.rmtree(self.folder)
        for call in (lambda: client.files.content(file.id), lambda: self.upload(client, [line("a")])):
            with self.assertRaisesRegex(openai.InternalServerError, "its log says why") as caught:
                call()
            self.assertNotIn(self.folder, str(caught.exception))

    def test_one_server_for_a_directory(self):
        self.start()
        with self.assertRaisesRegex(AssertionError, "in use by another server"):
            Server(MINILM, "--device", "cpu", "--batch-dir", self.folder)

    def test_a_damaged_record_is_named(self):
        os.mkdir(self.folder)
        for name, words in (("batch_" + "0" * 24 + ".json", "no record of a batch"),
                            ("file-" + "0" * 24 + ".json", "no description of a file")):
            with open(self.at(name), "w", encoding="ascii") as file:
                file.write("{}")
            with self.assertRaisesRegex(AssertionError, words):
                Server(MINILM, "--device", "cpu", "--batch-dir", self.folder)
            os.remove(self.at(name))


if __name__ == "__main__":
    main(__name__)
