"""A real browser: a page of another origin and one by a name that was rebound to this server get nothing computed;
the server's own page goes on working."""
import http.server
import json
import threading

from browsing import CHROMIUM, DRIVER, webdriver
from serving import MINILM, Served, Server, main

NAME = "evil.example"
ASK = """
const done = arguments[arguments.length - 1];
fetch(arguments[0], {method: 'POST', mode: arguments[1], headers: {'Content-Type': 'text/plain'},
                     body: JSON.stringify({inputs: 'a dog', input: 'a dog'})})
  .then((reply) => reply.text().then((text) => done([reply.type, reply.status, text])), (error) => done(['failed', 0, String(error)]));
"""
FORM = """
const form = document.createElement('form');
form.method = 'POST'; form.action = arguments[0]; form.enctype = 'text/plain';
const field = document.createElement('input');
field.name = '{"inputs": "a dog", "x": "'; field.value = '"}';
form.append(field); document.body.append(form); form.submit();
"""
PATHS = ("/embed", "/v1/embeddings", "/v2/repository/models/all-MiniLM-L6-v2/unload")


class Foreign(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"<!doctype html><title>foreign</title><body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


class Pages(Served):
    arguments = (MINILM, "--model-control")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         "--host-resolver-rules=MAP %s 127.0.0.1" % NAME):
            options.add_argument(argument)
        cls.browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
        cls.browser.set_script_timeout(60)
        cls.foreign = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
        threading.Thread(target=cls.foreign.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.foreign.shutdown()
        cls.foreign.server_close()
        super().tearDownClass()

    def ask(self, url, mode="cors"):
        return self.browser.execute_async_script(ASK, url, mode)

    def computed(self, server=None):
        """Texts that the model has computed."""
        stats = (server or self.server).get("/v2/models/all-MiniLM-L6-v2/stats")
        self.assertEqual(stats.status, 200, stats.body)
        return stats.json()["model_stats"][0]["inference_count"]

    def test_foreign_pages(self):
        before = self.computed()
        for host in ("127.0.0.1", "localhost", NAME):
            self.browser.get("http://%s:%d/" % (host, self.foreign.server_address[1]))
            self.assertEqual(self.browser.title, "foreign")
            for path in PATHS:
                self.assertEqual(self.ask(self.server.url + path)[0], "failed")
                self.assertEqual(self.ask(self.server.url + path, "no-cors")[0], "opaque")
            self.browser.execute_script(FORM, self.server.url + "/embed")
            self.assertIn("--cors-origin", self.wait_for_text())
        self.assertEqual(self.computed(), before)

    def wait_for_text(self):
        from selenium.webdriver.support.ui import WebDriverWait
        WebDriverWait(self.browser, 60).until(lambda browser: browser.current_url.endswith("/embed"))
        return self.browser.execute_script("return document.body.innerText")

    def test_rebound_name(self):
        before = self.computed()
        url = "http://%s:%d" % (NAME, self.server.port)
        self.browser.get(url + "/docs")  # a document of that origin, whichever server it is from
        for path in PATHS:
            kind, status, text = self.ask(url + path)
            self.assertEqual((kind, status), ("basic", 403), text)
            self.assertIn("--allowed-host", text)
        self.assertEqual(self.computed(), before)

    def test_own_page(self):
        for host in ("127.0.0.1", "localhost"):
            url = "http://%s:%d" % (host, self.server.port)
            self.browser.get(url + "/docs")
            kind, status, text = self.ask(url + "/embed")
            self.assertEqual((kind, status), ("basic", 200), text)
            self.assertEqual(len(json.loads(text)[0]), 384)

    def test_opened(self):
        page = "http://127.0.0.1:%d" % self.foreign.server_address[1]
        server = Server(MINILM, "--cors-origin", page, "--allowed-host", NAME)
        try:
            self.browser.get(page + "/")
            self.assertEqual(self.ask(server.url + "/embed")[:2], ["cors", 200])
            url = "http://%s:%d" % (NAME, server.port)
            self.browser.get(url + "/docs")
            self.assertEqual(self.ask(url + "/embed")[:2], ["basic", 200])
            self.assertGreater(self.computed(server), 0)
        finally:
            server.stop()


main(__name__)
