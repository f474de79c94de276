"""The web page in a real browser: results, error messages, several models, API keys, no other host.
test_page_access.py tests accessibility and screen sizes."""
import json
import os
import subprocess
import sys

from browsing import HEAD, Browsed, By, Keys
from serving import MINILM, embed, main, model

from common import ROOT

TINY = os.path.join(ROOT, "tests/data/models")


class Page(Browsed):
    arguments = (MINILM, "--head", HEAD)

    def test_embedding_shows_similarities_a_plane_and_vectors(self):
        self.submit("embed")
        texts = self.one("#embed-texts").get_attribute("value").split("\n")
        vectors = embed(texts)
        cells = [float(cell.text) for cell in self.all("#heat tbody td")]
        expected = [sum(x * y for x, y in zip(a, b)) for a in vectors for b in vectors]
        self.assertEqual(len(cells), len(expected))
        for shown, true in zip(cells, expected):
            self.assertAlmostEqual(shown, true, delta=0.0051)
        self.assertEqual(len(self.all("#plane circle")), len(texts))
        shown = [float(cell.text) for cell in self.all("#vectors tbody tr:first-child td")]
        for value, true in zip(shown, vectors[0]):
            self.assertAlmostEqual(value, true, delta=0.000051)
        self.assertIn("68 tokens", self.text("embed-status"))

    def test_the_plane_keeps_what_lies_together_together(self):
        self.write("embed-texts", "a cat\nstock prices fall\nthe cat\nprices of stocks fall")
        self.submit("embed")
        self.one("#plane-details summary").click()
        points = [[float(cell.text) for cell in row.find_elements(By.TAG_NAME, "td")]
                  for row in self.all("#points tbody tr")]
        for i, mate in enumerate((2, 3, 0, 1)):
            far = [sum((a - b) ** 2 for a, b in zip(points[i], point)) for point in points]
            self.assertEqual(min(set(range(4)) - {i}, key=far.__getitem__), mate, far)

    def test_one_text_has_no_plane(self):
        self.write("embed-texts", "alone")
        self.submit("embed")
        self.assertEqual([cell.text for cell in self.all("#heat tbody td")], ["1.00"])
        self.assertFalse(self.one("#plane").is_displayed())
        self.assertIn("at least 3 texts", self.text("plane-about"))

    def test_classes_tokens_and_ranks(self):
        self.submit("classify")
        self.assertGreater(len(self.all("#bars .bar")), 1)
        scores = [float(row.text.split()[-1]) for row in self.all("#bars .bar")]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.submit("tokens")
        self.assertEqual(self.all("#tokens li")[0].text.split("\n"), ["[CLS]", "101"])
        self.assertIn("256", self.text("token-count"))
        self.submit("rerank")
        self.assertIn("bread", self.all("#ranking .bar")[0].text)
        self.assertIn("similarity", self.text("ranking-about"))

    def test_the_keyboard_sends(self):
        self.one("#embed-texts").send_keys(Keys.CONTROL, Keys.ENTER)
        self.until(lambda: self.all("#heat td"))

    def test_figures_come_from_the_server(self):
        self.until(lambda: self.text("memory") != "–")
        self.submit("embed")
        self.until(lambda: self.text("rate") not in ("–", "0.0"))
        self.assertGreater(float(self.text("memory")), 50)
        self.assertIn("mean", self.text("history-words"))
        self.one("#history-table summary").click()
        self.until(lambda: self.all("#history-rows tr"))

    def wrong(self, tab, field, words):
        """The error stands at its field, which says so, and nothing of before is left to be mistaken."""
        self.submit(tab, good=False)
        self.until(lambda: words in self.text(field + "-error"))
        self.assertEqual(self.one("#" + field).get_attribute("aria-invalid"), "true")
        self.assertIn(field + "-error", self.one("#" + field).get_attribute("aria-describedby"))
        self.assertFalse(self.one("#%s-result" % tab).is_displayed())

    def test_errors_are_at_their_fields(self):
        self.submit("embed")
        self.write("embed-texts", " \n")
        self.wrong("embed", "embed-texts", "Enter a text.")
        self.write("embed-texts", "\n".join(map(str, range(65))))
        self.wrong("embed", "embed-texts", "65 texts exceed the limit of 64")
        self.write("embed-texts", "short\n" + "long " * 300)
        self.wrong("embed", "embed-texts", "Text 2: the text has 302 tokens (2 of them special), the limit is 256. "
                   "Shorten it, or select \u201cTruncate long texts\u201d.")
        self.one("#embed-cut").click()
        self.submit("embed")
        self.assertIn("1 text truncated", self.text("embed-status"))
        self.assertEqual((self.text("embed-texts-error"), self.one("#embed-texts").get_attribute("aria-invalid")), ("", None))
        self.write("classify-text", "")
        self.wrong("classify", "classify-text", "Enter a text.")
        self.write("rerank-query", "")
        self.wrong("rerank", "rerank-query", "Enter a text.")
        self.write("rerank-query", "a")
        self.write("rerank-documents", "")
        self.wrong("rerank", "rerank-documents", "Enter a text.")

    def test_nothing_moves(self):
        """Fields and buttons stay where they are while it computes, when it is done, and for an error."""
        def places():
            return [self.one(name).rect for name in ("#tabs", "#embed-texts", "#embed-form button")]
        before = places()
        self.submit("embed")
        self.assertEqual(places(), before)
        self.write("embed-texts", "")
        self.submit("embed", good=False)
        self.until(lambda: self.text("embed-texts-error"))
        self.assertEqual(places(), before)

    def test_the_request_in_curl_and_python_gives_the_same(self):
        texts = ["it's \"quoted\"", "na\u00efve \u65e5\u672c \U0001f642", "$HOME `id` \\ \\n", "true"]
        self.write("embed-texts", "\n".join(texts))
        self.assertFalse(self.one("#embed-call").is_displayed())
        self.submit("embed")
        self.one("#embed-call summary").click()
        curl, python = [node.text for node in self.all("#embed-call pre")]
        self.assertIn("import requests", python)
        expected = embed(texts)
        for command in (["bash", "-c", curl + " --silent"], [sys.executable, "-c", python]):
            said = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode()
            for a, b in zip(json.loads(said), expected, strict=True):
                self.assertGreater(sum(x * y for x, y in zip(a, b)), 0.99999, command)
        self.browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})
        self.all("#embed-call button")[0].click()
        self.until(lambda: "Copied." in self.text("embed-call"))
        self.assertEqual(self.browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])"), curl)
        self.write("embed-texts", "")
        self.wrong("embed", "embed-texts", "Enter a text.")
        self.assertFalse(self.one("#embed-call").is_displayed(), "the request of the result before is still there")

    def test_one_model_has_nothing_to_compare_with(self):
        self.assertFalse(self.one("#other-field").is_displayed())

    def test_a_text_is_never_markup(self):
        self.write("embed-texts", "<img src=x onerror=document.title='lost'>\n<b>b</b>\n&amp;")
        self.submit("embed")
        self.assertIn("&amp;", self.text("vectors"))
        self.assertEqual(self.all("#panel-embed img, #embed-result td b"), [])
        self.assertEqual(self.browser.title, "gpuserve")

    def test_nothing_is_asked_elsewhere_and_nothing_fails(self):
        self.submit("embed")
        asked = self.script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        self.assertTrue(asked)
        self.assertEqual([url for url in asked if not url.startswith(self.server.url)], [])
        bad = [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] == "SEVERE"]
        self.assertEqual(bad, [])

    def test_the_document_of_the_api_is_shown(self):
        self.browser.get(self.server.url + "/docs")
        self.until(lambda: self.all(".operation"))
        self.assertIn("/v1/embeddings", self.one("main").text)
        paths = self.server.get("/openapi.json").json()["paths"]
        self.assertEqual(len(self.all(".operation")), sum(map(len, paths.values())))
        entry = next(one for one in self.all(".operation") if "/v1/embeddings" in one.text)
        entry.find_element(By.TAG_NAME, "summary").click()
        self.until(lambda: "encoding_format" in entry.text)
        for words in ("curl " + self.server.url + "/v1/embeddings", "text or list of text", "Other responses"):
            self.assertIn(words, entry.text)
        self.write("find", "rerank")
        shown = [one.text for one in self.all(".operation") if one.is_displayed()]
        self.assertGreater(len(shown), 3)
        self.assertEqual([one for one in shown if "rerank" not in one], [])
        self.write("find", "no such thing")
        self.assertIn("No path", self.text("found"))


class Gone(Browsed):
    """A server that ends while somebody looks at its page."""
    arguments = (MINILM,)

    def test_it_is_said(self):
        self.server.stop()
        self.submit("embed", good=False)
        self.until(lambda: "does not respond" in self.text("embed-texts-error"))
        self.until(lambda: "does not respond" in self.text("live-error"))
        self.assertEqual(self.text("rate"), "–")


class Several(Browsed):
    arguments = ("minilm=" + MINILM, "org/splade=" + model("splade-tiny"), "tokens=" + os.path.join(TINY, "bert-tokens"),
                 "cross=" + os.path.join(TINY, "bert-cross-encoder"), "pairs=" + os.path.join(TINY, "bert-pairs"))

    def choose(self, name, words, field="model"):
        self.one("#%s option[value='%s']" % (field, name)).click()
        self.until(lambda: words in self.text("model-facts"))

    def test_each_is_asked_for_what_it_can(self):
        self.submit("embed")
        self.choose("org/splade", "128 dimensions")
        self.assertFalse(self.one("#embed-result").is_displayed(), "what another model said is still there")
        self.submit("embed")
        self.assertIn("of 128 components", self.text("vectors-about"))
        self.choose("cross", "1 label")
        self.assertIn("has no embeddings", self.one("#panel-embed .cannot").text)
        self.assertFalse(self.one("#embed-form").is_displayed())
        self.write("tokens-text", "w1")
        self.submit("tokens")
        self.assertIn("59", self.text("tokens"))  # its id in this model's vocabulary alone
        self.submit("rerank")
        self.assertIn("cross-encoder", self.text("ranking-about"))
        self.choose("minilm", "384 dimensions")
        self.tab("classify")
        self.assertIn("--head", self.one("#panel-classify .cannot").text)

    def test_two_models_side_by_side(self):
        self.choose("org/splade", "org/splade: float32", "other")
        self.submit("embed")
        self.assertEqual([node.text for node in self.all("#embed-result .similarity h2")], ["Similarity, minilm", "Similarity, org/splade"])
        texts = self.one("#embed-texts").get_attribute("value").split("\n")
        both = []
        for name, place in (("minilm", "heat"), ("org/splade", "embed-other")):
            vectors = self.server.post("/embed", {"model": name, "inputs": texts}).json()
            norms = [sum(x * x for x in row) ** 0.5 for row in vectors]
            cosines = [[sum(x * y for x, y in zip(a, b)) / m / n for b, n in zip(vectors, norms)] for a, m in zip(vectors, norms)]
            shown = [float(cell.text) for cell in self.all("#%s tbody td" % place)]
            for value, true in zip(shown, sum(cosines, []), strict=True):
                self.assertAlmostEqual(value, true, delta=0.0051)
            pairs = [cosines[i][j] for i in range(len(texts)) for j in range(i + 1, len(texts))]
            both.append([sum(other < one for other in pairs) for one in pairs])
        n = len(both[0])  # ranks without ties: Spearman's formula
        correlation = 1 - 6 * sum((a - b) ** 2 for a, b in zip(*both)) / (n * (n * n - 1))
        self.assertIn("Rank correlation with minilm: %.2f." % correlation, self.text("embed-other"))
        self.submit("rerank")
        self.assertEqual(len(self.all("#rerank-other .bar")), 4)
        self.assertIn("Rank correlation", self.text("rerank-other"))
        self.submit("tokens")
        self.assertIn("limit is", self.text("tokens-other"))
        self.choose("cross", "cross: float32", "other")
        self.submit("embed")
        self.assertIn("has no embeddings", self.text("embed-other"))
        self.one("#other option[value='']").click()
        self.until(lambda: self.text("model-facts").startswith("float32"))
        self.submit("embed")
        self.assertFalse(self.one("#embed-other").is_displayed())
        self.assertEqual(self.text("heat-title"), "Similarity")

    def test_the_error_of_the_other_model_leaves_the_result(self):
        self.choose("org/splade", "at most")
        self.choose("minilm", "minilm: float32", "other")
        self.write("embed-texts", "word " * 300)
        self.submit("embed")
        self.assertIn("the limit is 256", self.text("embed-other"))
        self.assertTrue(self.one("#heat").is_displayed())

    def test_pairs_and_labels_of_tokens(self):
        self.choose("pairs", "3 labels")
        self.write("classify-text", "w3")
        self.submit("classify")
        alone = self.text("bars")
        self.one("#classify-pair").send_keys("w1 w2")
        self.submit("classify")
        self.assertNotEqual(self.text("bars"), alone)
        self.choose("tokens", "token labels")
        self.write("classify-text", "w1 w2")
        self.submit("classify")
        self.assertGreater(len(self.all("#bars .entity")), 0)
        self.tab("rerank")
        self.assertIn("does not support reranking", self.one("#panel-rerank .cannot").text)


class Key(Browsed):
    arguments = (MINILM, "--api-key", "secret")

    def ready(self):
        return self.one("#key-form").is_displayed()

    def test_it_asks_for_a_key(self):
        self.assertIn("requires an API key", self.text("key-error"))
        self.one("#key").send_keys("wrong", Keys.ENTER)
        self.until(lambda: "not valid" in self.text("key-error"))
        self.until(lambda: "require an API key" in self.text("live-error"))
        self.one("#key").clear()
        self.one("#key").send_keys("secret", Keys.ENTER)
        self.until(lambda: "float32" in self.text("model-facts"))
        self.assertFalse(self.one("#key-form").is_displayed())
        self.submit("embed")
        self.one("#embed-call summary").click()
        self.assertEqual(self.text("embed-call").count("GPUSERVE_API_KEY"), 2)
        self.assertNotIn("secret", self.text("embed-call"))
        self.submit("embed")
        self.until(lambda: self.text("memory") != "–")
        self.assertEqual(self.text("live-error"), "")


if __name__ == "__main__":
    main(__name__)
