"""The page for people, in a real browser: every tab, keyboard, dark and light, no outside host."""
import os
import shutil
import sys

from serving import MINILM, Served, embed, main, use_clients

use_clients()

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
if not CHROMIUM or not DRIVER:
    print("no Chromium with its driver here: skipped")
    sys.exit(77)

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

HEAD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/heads/topic.safetensors")


class Page(Served):
    arguments = (MINILM, "--head", HEAD)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu",
                         "--disable-dev-shm-usage", "--window-size=1100,1400"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        super().tearDownClass()

    def setUp(self):
        self.browser.get(self.server.url + "/")
        self.until(lambda: "float32" in self.text("model-facts"))

    def until(self, condition):
        WebDriverWait(self.browser, 30).until(lambda _: condition())

    def text(self, name):
        return self.browser.find_element(By.ID, name).text

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def submit(self, tab):
        self.browser.find_element(By.ID, "tab-" + tab).click()
        self.all(f"#{tab}-form button")[0].click()

    def test_embedding_shows_similarities_a_plane_and_vectors(self):
        self.submit("embed")
        self.until(lambda: self.all("#heat td"))
        texts = self.all("#embed-texts")[0].get_attribute("value").split("\n")
        vectors = embed(texts)
        cells = [float(cell.text) for cell in self.all("#heat tbody td")]
        expected = [sum(x * y for x, y in zip(a, b)) for a in vectors for b in vectors]
        for shown, true in zip(cells, expected):
            self.assertAlmostEqual(shown, true, delta=0.0051)
        self.assertEqual(len(self.all("#plane circle")), len(texts))
        self.assertIn("tokens", self.text("status"))

    def test_classes_tokens_and_ranks(self):
        self.submit("classify")
        self.until(lambda: self.all("#bars .bar"))
        self.assertGreater(len(self.all("#bars .bar")), 1)
        self.submit("tokens")
        self.until(lambda: self.all("#tokens li"))
        self.assertEqual(self.all("#tokens li")[0].text.split("\n"), ["[CLS]", "101"])
        self.submit("rerank")
        self.until(lambda: self.all("#ranking li"))
        self.assertIn("bread", self.all("#ranking li")[0].text)

    def test_figures_come_from_the_server(self):
        self.submit("embed")
        self.until(lambda: self.text("memory") not in ("", "–"))
        self.assertGreater(float(self.text("memory")), 50)

    def test_errors_are_shown(self):
        area = self.all("#embed-texts")[0]
        area.clear()
        self.submit("embed")
        self.until(lambda: "There is no text." in self.text("status"))

    def test_the_keyboard_reaches_every_tab(self):
        self.browser.find_element(By.ID, "tab-embed").send_keys(Keys.ARROW_RIGHT)
        chosen = self.all("[role=tab][aria-selected=true]")
        self.assertEqual([tab.get_attribute("id") for tab in chosen], ["tab-classify"])
        chosen[0].send_keys(Keys.END)
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "tab-rerank")
        unlabelled = [node.get_attribute("id") for node in self.all("input, textarea, select")
                      if not self.browser.execute_script("return arguments[0].labels.length", node)]
        self.assertEqual(unlabelled, [])

    def test_dark_and_light(self):
        colours = []
        for scheme in ("light", "dark"):
            self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
                "features": [{"name": "prefers-color-scheme", "value": scheme}]})
            colours.append(self.browser.execute_script(
                "return getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(*colours)

    def test_nothing_is_asked_elsewhere_and_nothing_fails(self):
        self.submit("embed")
        self.until(lambda: self.all("#heat td"))
        asked = self.browser.execute_script(
            "return performance.getEntriesByType('resource').map((entry) => entry.name)")
        self.assertTrue(asked)
        self.assertEqual([url for url in asked if not url.startswith(self.server.url)], [])
        bad = [entry["message"] for entry in self.browser.get_log("browser")
               if entry["level"] == "SEVERE"]
        self.assertEqual(bad, [])

    def test_the_document_of_the_api_is_shown(self):
        self.browser.get(self.server.url + "/docs")
        self.until(lambda: self.all("details"))
        self.assertIn("/v1/embeddings", self.all("main")[0].text)


if __name__ == "__main__":
    main(__name__)
