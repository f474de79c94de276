"""What the tests of the page share: one headless Chromium, and the page of a running server in it."""
import atexit
import functools
import os
import shutil
import sys

from serving import Served, use_clients

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

__all__ = ["HEAD", "Browsed", "By", "Keys"]
HEAD = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "../data/heads/topic.safetensors")


@functools.cache
def chromium():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    atexit.register(browser.quit)
    return browser


class Browsed(Served):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = chromium()

    def setUp(self):
        self.screen(1100, 1400)
        self.browser.get_log("browser")  # of tests before
        self.browser.get(self.server.url + "/")
        self.until(self.ready)

    def ready(self):
        return "float32" in self.text("model-facts")

    def until(self, condition):
        WebDriverWait(self.browser, 30).until(lambda _: condition())

    def screen(self, width, height, scheme="light", motion="no-preference"):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": motion}]})

    def script(self, text, *arguments):
        return self.browser.execute_script(text, *arguments)

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, name):
        return self.browser.find_element(By.ID, name).text

    def write(self, name, text):
        self.script("const node = document.getElementById(arguments[0]); node.value = arguments[1];"
                    "node.dispatchEvent(new Event('input'))", name, text)

    def tab(self, name):
        self.one("#tab-" + name).click()

    def submit(self, tab, good=True):
        """Sends the form of a tab; waits for what comes of it unless that is to be an error."""
        self.tab(tab)
        self.script("document.getElementById(arguments[0]).textContent = ''", tab + "-status")
        self.one("#%s-form button" % tab).click()
        if good:
            self.until(lambda: self.text(tab + "-status").startswith("Done"))
