"""Each field of the specifications has the outcome that fields.py states, on a running server; the tables of the
documents say the same."""
import collections
import copy
import importlib
import inspect
import json
import os
import re
import sys
import unittest

# --write is given by hand, without the PYTHONPATH of ./dev test.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from serving import Served, main, model, use_clients

use_clients()

from common import ROOT  # noqa: E402
from fields import ENDPOINTS  # noqa: E402

PAGE = os.path.join(ROOT, "docs/http-fields.md")
VOLATILE = ("id", "created", "total_duration", "meta")
HEAD = """# Fields of requests

Support of every request parameter of each API dialect. `./dev test -k http_fields` sends each parameter to a running
server; this page is made from the same rows: `python3 tests/http/dialects/test_fields.py --write`. Fields of gpuserve's own and
their rules: [http.md](http.md#fields-of-a-request). A field that no specification here has is ignored, except in the `parameters`
of Hugging Face and Vertex AI, where it is refused by name.

| outcome | meaning |
|---|---|
| honoured | it changes the reply, or the work, as in the dialect's own server |
| refused by name | status 400, or the dialect's other status for it; it would change the result |
| no effect | the result does not depend on it, in the dialect's own server either |
"""


def words(outcome):
    return "honoured" if outcome.kind == "checked" else outcome.kind


def page():
    parts, dialects = [HEAD], collections.defaultdict(list)
    for one in ENDPOINTS:
        dialects[one.dialect].append(one)
    for dialect, endpoints in dialects.items():
        parts.append("\n## %s\n\n| path | honoured | refused by name | no effect | specification |\n|---|---|---|---|---|\n" % dialect)
        for one in endpoints:
            cells = [", ".join("`%s`" % name for name, outcome in one.fields.items() if words(outcome) == kind) or "-"
                     for kind in ("honoured", "refused by name", "no effect")]
            parts.append("| `%s` | %s | %s |\n" % (one.path, " | ".join(cells), one.source))
    return "".join(parts)


def with_field(body, path, value):
    """A copy of the body with the field, whose objects and lists are there or become objects."""
    body = copy.deepcopy(body)
    at = body
    for name in path.split(".")[:-1]:
        at = at[int(name)] if isinstance(at, list) else at.setdefault(name, {})
    at[path.split(".")[-1]] = value
    return body


def client_fields(name):
    """The request fields that an unmodified client package knows."""
    module, names = name.split(":")
    value = importlib.import_module(module)
    for part in names.split("."):
        value = getattr(value, part)
    if inspect.isfunction(value):
        return set(inspect.signature(value).parameters) - {"self", "request_options", "batching"}
    for known in ("model_fields", "__dataclass_fields__", "__annotations__"):
        if hasattr(value, known):
            return set(getattr(value, known))
    raise AssertionError(name)


def models():
    folder = os.path.join(ROOT, "tests/data/models")
    for name, at in (("gemma", "embeddinggemma"), ("multi", "bert-pairs"), ("cross", "bert-cross-encoder"),
                     ("tokens", "bert-tokens")):
        yield "%s=%s" % (name, os.path.join(folder, at))
    yield "masked=" + model("splade-tiny")


class Fields(Served):
    """A field that is honoured turns a refused text into a result, or (`truncate`: false) the other way round."""

    arguments = tuple(models())

    def ask(self, endpoint, body):
        """(status, what a client reads) without members that differ between two equal requests."""
        reply = self.server.post(endpoint.path, body)
        try:
            value = reply.json()
        except ValueError:
            return reply.status, reply.body
        if isinstance(value, dict) and reply.status == 200:
            value = {name: member for name, member in value.items() if name not in VOLATILE or member == body.get(name)}
        return reply.status, value

    def test_each(self):
        n = 0
        for endpoint in ENDPOINTS:
            status, reply = self.ask(endpoint, endpoint.body)
            self.assertEqual(status, 200, (endpoint.path, reply))
            for name, outcome in endpoint.fields.items():
                with self.subTest(dialect=endpoint.dialect, path=endpoint.path, field=name):
                    self.check(endpoint, name, outcome)
                    n += 1
        self.assertGreater(n, 250)

    def check(self, endpoint, name, outcome):
        without = {**endpoint.body, **outcome.others}
        body = with_field(without, name, outcome.value)
        status, reply = self.ask(endpoint, body)
        before = self.ask(endpoint, without)
        if outcome.kind in ("refused by name", "checked"):
            self.assertIn(status, (400, 404, 422, 501), reply)
            self.assertIn(outcome.says or name.split(".")[-1], json.dumps(reply))
            self.assertEqual(before[0], 200, before)
        elif outcome.kind == "honoured":
            self.assertNotEqual((status, reply), before)
            self.assertEqual(200, before[0] if outcome.value is False and "truncat" in name.lower() else status, reply)
        else:
            self.assertEqual((status, reply), before)
            self.assertEqual(status, 200, reply)

    def test_they_are_all_that_clients_know(self):
        checked = 0
        for endpoint in ENDPOINTS:
            if endpoint.client:
                known = {name.split(".")[-1] for name in endpoint.fields}
                self.assertLessEqual(client_fields(endpoint.client), known, (endpoint.client, endpoint.path))
                checked += 1
        self.assertGreater(checked, 10)


class Documents(unittest.TestCase):
    def test_the_page(self):
        with open(PAGE, encoding="utf-8") as file:
            self.assertEqual(file.read(), page(), "renew it: python3 tests/http/dialects/test_fields.py --write")

    def test_the_table_of_http_md(self):
        """A field that a row names as honoured is not refused on its paths, and the other way round."""
        with open(os.path.join(ROOT, "docs/http.md"), encoding="utf-8") as file:
            table = file.read().split("\n## Fields of a request\n")[1].split("| path |")[1].split("\n\n")[0].splitlines()[2:]
        compared = 0
        for row in table:
            paths, honoured, not_honoured = (set(re.findall(r"`([^`]+)`", cell)) for cell in row.strip("|").split(" | "))
            for endpoint in ENDPOINTS:
                if endpoint.path not in paths:
                    continue
                for name, outcome in endpoint.fields.items():
                    last = name.split(".")[-1]
                    if last in honoured or last in not_honoured:
                        compared += 1
                    if last in honoured and last not in not_honoured:
                        self.assertNotEqual(outcome.kind, "refused by name", (endpoint.path, name))
                    if last in not_honoured and last not in honoured:
                        self.assertEqual(outcome.kind, "refused by name", (endpoint.path, name))
        self.assertGreater(compared, 60)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        with open(PAGE, "w", encoding="utf-8") as made:
            made.write(page())
    else:
        main(__name__)
