"""The OpenAPI document: it names every route there is, and the server keeps to it."""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from serving import MINILM, Served, main, use_clients

use_clients()

from common import gpuserve  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
HEAD = os.path.join(ROOT, "tests/data/heads/topic.safetensors")


def routes():
    """(method, path) of the tables in the sources."""
    found, names = set(), {}
    for path in sorted(glob.glob(os.path.join(ROOT, "lib/http/dialects/*.c"))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        names.update(re.findall(r'#define (\w+) "(/[^"]*)"', text))
        names.update({name: names[base] + rest for name, base, rest in
                      re.findall(r'#define (\w+) (\w+) "(/[^"]*)"', text) if base in names})
        for method, base, rest in re.findall(
                r'\{ "(GET|POST|DELETE)", (?:([A-Z]\w*)(?: ?|,))?(?:"([^"]*)")?,? GSV_', text):
            found.add((method, names.get(base, "") + rest))
    return found


def documented():
    """(protocol, method, path) of the table in docs/http.md. `[x]` in a path is optional; a path without a method has
    the one before it, an empty first cell means that of the row above."""
    with open(os.path.join(ROOT, "docs/http.md"), encoding="utf-8") as file:
        table = file.read().split("## Endpoints\n")[1].strip().split("\n\n")[0].splitlines()[2:]
    protocols = []
    for row in table:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        protocols = cells[0].split(", ") if cells[0] else protocols
        method = None
        for given, path in re.findall(r"`(?:(GET|POST|DELETE) )?(/[^`]*)`", cells[1]):
            method = given or method
            optional = re.search(r"\[(.*)\]", path)
            for one in {path.replace(optional.group(0), part) for part in ("", optional.group(1))} if optional else (path,):
                yield from ((protocol, method, one) for protocol in protocols)


class Endpoints(unittest.TestCase):
    def listed(self):
        done = gpuserve("serve", "--list-endpoints", "json")
        self.assertEqual(done.returncode, 0, done.err)
        return json.loads(done.out)

    def test_json_has_the_routes(self):
        listed = self.listed()
        self.assertEqual({(one["method"], one["path"]) for one in listed}, routes())
        self.assertEqual(len(listed), len({(one["method"], one["path"]) for one in listed}))

    def test_text_has_the_same(self):
        rows = [line.split(None, 3) for line in gpuserve("serve", "--list-endpoints", "text").out.splitlines()]
        self.assertEqual(rows[0], ["METHOD", "PATH", "KEY", "PROTOCOL"])
        self.assertEqual(rows[1:], [[one["method"], one["path"], "yes" if one["needs_key"] else "no", ", ".join(one["protocols"])]
                                    for one in self.listed()])

    def test_the_document_s_table_has_the_same(self):
        there = {(protocol, one["method"], one["path"]) for one in self.listed() for protocol in one["protocols"]}
        self.assertEqual(set(documented()), there)


def listed(*arguments):
    done = gpuserve("serve", "--list-endpoints", "json", *arguments)
    assert done.returncode == 0, done.err
    return json.loads(done.out)


def dialects():
    """{name for --dialects: its protocols} of the table in docs/http.md."""
    with open(os.path.join(ROOT, "docs/http.md"), encoding="utf-8") as file:
        table = file.read().split("### Dialects of a server\n")[1].split("| dialect |")[1].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    return {name.strip("`"): set(protocols.split(", ")) for name, protocols in rows}


class Dialects(unittest.TestCase):
    def test_each_has_its_endpoints_and_those_of_every_server(self):
        everything, names = listed(), dialects()
        native = {"gpuserve", "Prometheus"}
        self.assertEqual({protocol for one in everything for protocol in one["protocols"]}, set().union(*names.values()) | native)
        for name, protocols in names.items():
            with self.subTest(name=name):
                want = [one for one in everything if not one["needs_key"] or set(one["protocols"]) & (protocols | native)
                        or one["path"] in ("/v1/models", "/models", "/v1/models/{model}")]
                self.assertEqual(listed("--dialects", name), want)
        self.assertEqual(listed("--dialects", ",".join(names)), everything)
        self.assertLess({one["path"] for one in listed("--dialects", "vllm")}, {one["path"] for one in listed("--dialects", "vllm, cohere")})

    def test_unknown_names(self):
        for arguments in (("--list-endpoints", "text"), ("m", "--check-config"), (MINILM, "--port", "0")):
            for given, unknown in (("openai,tie", "tie"), ("OpenAI", "OpenAI"), (",", "")):
                done = gpuserve("serve", *arguments, "--dialects", given)
                self.assertEqual(done.returncode, 1)
                self.assertIn('`dialects`: "%s" is not one of %s\n' % (unknown, ", ".join(dialects())), done.err)
        done = gpuserve("serve", "m", "--check-config", "--dialects", "tei", "--batch-dir", "none")
        self.assertEqual(done.returncode, 1)
        self.assertIn("`batch_dir` needs `openai` among the `dialects`", done.err)


def openapi():
    """The document of all dialects, as the build makes it."""
    with tempfile.TemporaryDirectory() as folder:
        made = os.path.join(folder, "openapi.json")
        version = gpuserve("--version").out.split()[1]
        subprocess.run([sys.executable, os.path.join(ROOT, "lib/http/web_ui/openapi.py"), version, made], check=True)
        with open(made, encoding="utf-8") as file:
            return json.load(file)


class Selected(Served):
    arguments = (MINILM, "--dialects", "openai,vertex", "--predict-route", "/embed")

    def test_what_is_there(self):
        there, everything = ({(one["method"], one["path"]): one for one in listed(*arguments)}
                             for arguments in (("--dialects", "openai,vertex"), ()))
        self.assertGreater(len(everything), len(there) + 30)
        for (method, path), one in everything.items():
            with self.subTest(method=method, path=path):
                reply = self.server.request(method, re.sub(r"\{\w+\}", "1", path), b"{}")
                words = "%s %s belongs to %s, which --dialects of this server leaves out" % (
                    method, re.sub(r"\{\w+\}", "1", path), ", ".join(one["protocols"]))
                if (method, path) in there or path == "/embed":
                    self.assertNotIn(b"--dialects", reply.body)
                    self.assertNotIn(b"unknown route", reply.body)
                else:
                    self.assertEqual(reply.status, 404)
                    self.assertIn(words, reply.body.decode())
        self.assertEqual(self.server.get("/health").status, 200)
        self.assertEqual(self.server.get("/v1/models").json()["data"][0]["id"], "all-MiniLM-L6-v2")
        self.assertIn(b"gpuserve_http_ready 1", self.server.get("/metrics").body)
        self.assertEqual(self.server.post("/v1/embeddings", {"input": "a"}).status, 200)

    def test_the_document_has_what_is_there(self):
        """And what it says of an operation is what a server with all dialects says."""
        there = {(one["method"], one["path"]) for one in listed(*self.arguments[1:3])}
        document = self.server.get("/openapi.json").json()
        named = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
        self.assertEqual(named, there)
        self.assertNotIn(("POST", "/"), there)  # of Hugging Face, beside the page at GET /
        everything = openapi()
        self.assertEqual({**document, "paths": 0}, {**everything, "paths": 0})
        for method, path in there:
            self.assertEqual(document["paths"][path][method.lower()], everything["paths"][path][method.lower()])

    def test_borders(self):
        # A path of a dialect that is left out is free for --predict-route.
        self.assertEqual(list(self.server.post("/embed", {"instances": [{"inputs": "a"}]}).json()), ["predictions"])
        # A path that is left out gets status 404 and the error body of its own dialect; an unknown path 404; a wrong method 405.
        self.assertIn("belongs to Ollama", self.server.post("/api/embed", {"input": "a"}).json()["error"])
        self.refused(404, "belongs to vLLM", "/v1/score", {})
        self.refused(404, "belongs to text-embeddings-inference", "/info", {})
        self.refused(404, "unknown route POST /nowhere", "/nowhere", {})
        self.refused(405, "only GET", "/metrics", {})
        reply = self.server.request("DELETE", "/v1/models/1")
        self.assertEqual((reply.status, reply.headers["Allow"]), (405, "GET"))
        # Rows of one pattern may belong to different dialects.
        self.assertEqual(self.server.get("/").status, 200)
        self.refused(404, "POST / belongs to Hugging Face", "/", {"inputs": "a"})
        self.assertEqual(self.server.get("/models").status, 200)
        self.refused(404, "belongs to TensorFlow Serving, KServe v1", "/v1/models/all-MiniLM-L6-v2:predict", {"instances": ["a"]})


class Clients(unittest.TestCase):
    def test_the_document_names_each(self):
        with open(os.path.join(ROOT, "docs/http.md"), encoding="utf-8") as file:
            section = file.read().split("## Clients\n")[1].split("\n## ")[0]
        with open(os.path.join(ROOT, "tests/http/requirements-frameworks.txt"), encoding="utf-8") as file:
            names = re.findall(r"^([\w-]+)==", file.read(), re.MULTILINE)
        self.assertGreater(len(names), 5)
        for name in (*names, "openai", "huggingface_hub", "tritonclient", "cohere", "ollama", "tei-client", "curl", "net/http", "java.net.http", "urllib"):
            self.assertRegex(section, r"(?<![\w-])%s(?![\w-])" % name)


class Keys(Served):
    """`needs_key` of the list is what a server with a key does."""
    arguments = (MINILM, "--api-key", "secret")

    def test_needs_key(self):
        listed = json.loads(gpuserve("serve", "--list-endpoints", "json").out)
        self.assertTrue(any(not one["needs_key"] for one in listed))
        for one in listed:
            path = re.sub(r"\{\w+\}", "1", one["path"])
            self.assertEqual(self.server.request(one["method"], path, b"{}").status == 401, one["needs_key"], one)


class Document(Served):
    arguments = (MINILM, "--head", HEAD)

    def setUp(self):
        self.document = self.server.get("/openapi.json").json()

    def test_it_names_the_routes_that_there_are(self):
        named = {(method.upper(), path) for path, methods in self.document["paths"].items()
                 for method in methods}
        there = routes()
        self.assertGreater(len(there), 50)
        self.assertEqual(named, there)

    def test_page_about_tei_has_the_paths_that_exist(self):
        """docs/moving-from-tei.md: every path of its router (1.9) is in the table of paths, and there is such a route."""
        with open(os.path.join(ROOT, "docs/moving-from-tei.md"), encoding="utf-8") as file:
            page = file.read()
        served = page[page.index("## Endpoints"):page.index("## Not available")]
        named = {(method, path) for cell in re.findall(r"(?m)^\| `((?:GET|POST) [^|]*) \|", served)
                 for method in [cell.split()[0]] for path in re.findall(r"(/[\w/.-]*)`", cell)}
        self.assertEqual(named, {("POST", "/" + name) for name in (
            "", "embed", "embed_all", "embed_sparse", "predict", "rerank", "similarity", "tokenize", "decode", "embeddings",
            "v1/embeddings", "vertex", "invocations")} | {("GET", "/" + name) for name in (
                "", "info", "health", "ping", "metrics", "docs", "api-doc/openapi.json")})
        self.assertLessEqual(named, routes())

    def test_it_names_the_fields_that_there_are(self):
        """Of `parameters`, and of bodies and queries that a change forgot."""
        there = set()
        for name in ("dialects/hf", "inference/zero_shot", "inference/similarity", "inference/entities", "inference/label_entities"):
            with open(os.path.join(ROOT, "lib/http", name + ".c"), encoding="utf-8") as file:
                for fields in re.findall(r"known\[\] = \{(.*?)NULL", file.read(), re.DOTALL):
                    there.update(re.findall(r'"(\w+)"', fields))
        self.assertIn("threshold", there)

        def body(path):
            return self.document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]

        for path in ("/", "/models/{model}"):
            self.assertEqual(set(body(path)["parameters"]["properties"]), there)
        self.assertIn("keep_alive", body("/api/embed"))
        self.assertIn("input", body("/embedding"))
        for path, names in (("/v1/files", {"after", "limit", "order", "purpose"}), ("/v1/batches", {"after", "limit"})):
            self.assertEqual({one["name"] for one in self.document["paths"][path]["get"]["parameters"]}, names)

    def test_tei_s_place_has_the_same(self):
        self.assertEqual(self.server.get("/api-doc/openapi.json").json(), self.document)

    def test_the_server_keeps_to_it(self):
        """schemathesis: no answer of 5xx, none that the document does not have."""
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()",
                 "run", self.server.url + "/openapi.json",
                 # 501 is how KServe says that clients may not load models here.
                 "--exclude-path-regex", "/repository/models/", "--checks",
                 "not_a_server_error,status_code_conformance,content_type_conformance,"
                 "response_schema_conformance", "--max-examples", "8", "--seed", "1",
                 "--phases", "fuzzing", "--suppress-health-check", "all",
                 # A crowded machine is slow; this test is of answers.
                 "--request-timeout", "120",
                 "--report", "ndjson", "--report-dir", folder],
                capture_output=True, text=True, check=False, cwd=folder)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-2000:])
        self.assertRegex(done.stdout, r"[1-9]\d* generated")

    def test_every_answer_is_json_that_says_why(self):
        for method, path in (("POST", "/v1/embeddings"), ("POST", "/embed"), ("POST", "/v2/rerank")):
            reply = self.server.request(method, path, b"{", {"Content-Type": "application/json"})
            self.assertEqual(reply.status, 400)
            self.assertIn("byte 1", json.dumps(reply.json()))


if __name__ == "__main__":
    main(__name__)
