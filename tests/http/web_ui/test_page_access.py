"""Accessibility and screen sizes of the web page: contrast, names, the keyboard, readers of the
screen, a phone's width; by axe-core too."""
import os
import re

from browsing import HEAD, Browsed, By, Keys
from serving import MINILM, main

from common import ROOT

import axe_core_python

with open(os.path.join(os.path.dirname(axe_core_python.__file__), "axe.min.js"), encoding="utf-8") as file:
    AXE = file.read()
TABS = ("embed", "classify", "tokens", "rerank")
WORD = "Pneumonoultramicroscopicsilicovolcanoconiosis" * 6

# Text, and what it may stand on, at 4.5:1; edges of controls, marks and the focus at 3:1 (WCAG 1.4.3, 1.4.11).
TEXTS = [(text, ground) for text in ("ink", "quiet", "accent", "bad") for ground in ("ground", "raised")]
TEXTS.append(("on-accent", "accent"))
MARKS = [(mark, ground) for mark in ("edge", "accent", "bad") for ground in ("ground", "raised")]


def colours(block):
    return {name: tuple(int(value[i:i + 2], 16) for i in (0, 2, 4))
            for name, value in re.findall(r"--([\w-]+): #([0-9a-f]{6});", block)}


def luminance(colour):
    parts = [value / 255 for value in colour]
    parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


class Checked(Browsed):
    def assertFits(self, what):
        wide = self.script("return document.documentElement.scrollWidth - innerWidth")
        self.assertLessEqual(wide, 0, what)

    def assertAccessible(self, what):
        """By axe, on two widths, in light and dark."""
        self.script(AXE)
        for width, scheme in ((1280, "light"), (375, "dark")):
            self.screen(width, 900, scheme)
            found = self.browser.execute_async_script(
                "const done = arguments[0]; axe.run(document).then((result) => done(result.violations"
                ".map((one) => [one.id, one.nodes.map((node) => node.target.join(' '))])))")
            self.assertEqual(found, [], (what, width, scheme))


class Access(Checked):
    arguments = (MINILM, "--head", HEAD)

    def everything(self):
        """Each tab after its work, then /docs with entries open: the page in all its parts."""
        for tab in TABS:
            self.submit(tab)
            for summary in self.all("#panel-%s summary, #live summary" % tab):
                if summary.is_displayed() and not summary.find_element(By.XPATH, "..").get_attribute("open"):
                    summary.click()
            yield tab
        self.browser.get(self.server.url + "/docs")
        self.until(lambda: self.all(".operation"))
        self.script("[...document.querySelectorAll('.operation')].slice(0, 4).forEach((one) => { one.open = true; })")
        self.until(lambda: self.all(".operation h3"))
        self.script("document.querySelectorAll('details details').forEach((one) => { one.open = true; })")
        yield "docs"

    def test_colours_can_be_told_apart(self):
        with open(os.path.join(ROOT, "lib/http/web_ui/page.css"), encoding="utf-8") as file:
            style = file.read()
        light, dark = re.findall(r":root \{(.*?)\}", style, re.S)
        for block in (light, dark):
            theme = colours(block)
            for pairs, least in ((TEXTS, 4.5), (MARKS, 3)):
                for a, b in pairs:
                    self.assertGreaterEqual(contrast(theme[a], theme[b]), least, (a, b))
            # Numbers on the fullest colour of the heat map.
            heat = [int(part) for part in re.search(r"--heat: (\d+), (\d+), (\d+)", block).groups()]
            most = float(re.search(r"--heat-most: ([\d.]+)", block)[1])
            full = [most * a + (1 - most) * b for a, b in zip(heat, theme["raised"])]
            self.assertGreaterEqual(contrast(theme["ink"], full), 4.5)
        rest = style.replace(light, "").replace(dark, "")
        self.assertEqual(re.findall(r"#[0-9a-f]{3,6}\b(?=[;, ])|rgb\(", rest), [], "a colour without a name")

    def test_axe_finds_nothing(self):
        for what in self.everything():
            self.assertAccessible(what)

    def test_nothing_is_wider_than_the_screen(self):
        for what in self.everything():
            for width in (1280, 768, 375, 320):
                self.screen(width, 900)
                self.assertFits((what, width))
        self.setUp()
        self.screen(375, 900)
        self.write("tokens-text", WORD)
        self.write("embed-texts", WORD + "\n" + "a b " * 100 + "\n\u65e5\u672c\u8a9e \U0001f642")
        self.write("classify-text", WORD)
        self.write("rerank-documents", WORD + "\n" + "many words " * 100)
        for what in self.everything():
            self.assertFits((what, "long"))
        self.setUp()
        self.screen(375, 900)
        self.write("embed-texts", "long " * 400)
        self.submit("embed", good=False)
        self.until(lambda: self.text("embed-texts-error"))
        self.assertFits("error")

    def test_dark_and_light(self):
        grounds = []
        for scheme in ("light", "dark"):
            self.screen(1280, 900, scheme)
            grounds.append(self.script("return getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(*grounds)

    def test_nothing_moves_by_itself(self):
        self.screen(1280, 900, motion="reduce")
        for what in self.everything():
            moving = self.script(
                "return [...document.querySelectorAll('*')].filter((node) => { const style = getComputedStyle(node);"
                "return style.animationName !== 'none' || style.transitionDuration !== '0s'; }).length")
            self.assertEqual(moving, 0, what)

    def test_tabs_by_the_keyboard(self):
        self.one("#tab-embed").send_keys(Keys.ARROW_RIGHT)
        chosen = self.all("[role=tab][aria-selected=true]")
        self.assertEqual([tab.get_attribute("id") for tab in chosen], ["tab-classify"])
        chosen[0].send_keys(Keys.END)
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "tab-rerank")
        self.browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
        self.assertEqual(self.browser.switch_to.active_element.get_attribute("id"), "tab-embed")

    def test_the_keyboard_reaches_everything_and_shows_where_it_is(self):
        self.submit("embed")
        wanted = self.script(
            "return [...document.querySelectorAll('a, button, input, select, textarea, summary, .scroll')]"
            ".filter((node) => node.checkVisibility() && node.tabIndex >= 0).length")
        self.script("document.activeElement.blur(); getSelection().empty(); window.reached = new Set(); scrollTo(0, 0);"
                    "document.querySelector('.skip').focus()")
        for _ in range(3 * wanted):
            node = self.browser.switch_to.active_element
            again = self.script("const had = reached.has(arguments[0]); reached.add(arguments[0]); return had;", node)
            if again or node.tag_name == "body":
                break
            node.send_keys(Keys.TAB)
            seen = self.script("const style = getComputedStyle(document.activeElement); return [document.activeElement.outerHTML,"
                               "document.activeElement === document.body || `${style.outlineStyle} ${style.outlineWidth}` === 'solid 3px']")
            self.assertTrue(seen[1], seen[0][:200])
        reached = self.script(
            "return [...reached].filter((node) => node.matches('a, button, input, select, textarea, summary, .scroll')).length")
        self.assertEqual(reached, wanted)
        # The button keeps the focus while its work runs.
        button = self.one("#embed-form button")
        button.send_keys(Keys.ENTER)
        self.until(lambda: self.text("embed-status").startswith("Done"))
        self.assertEqual(self.browser.switch_to.active_element, button)

    def test_every_control_has_a_name(self):
        for what in self.everything():
            for node in self.all("a, button, input, select, textarea, summary, svg[role=img], [role=region]"):
                if node.is_displayed():
                    self.assertTrue(node.accessible_name, (what, node.get_attribute("outerHTML")[:200]))

    def test_charts_are_told_in_words_or_numbers(self):
        self.submit("embed")
        self.assertIn("% of the variance", self.one("#plane").accessible_name)
        self.one("#plane-details summary").click()
        self.assertEqual(len(self.all("#points tbody tr")), len(self.all("#plane circle")))
        self.until(lambda: self.all("#history polyline"))
        self.assertRegex(self.one("#history").accessible_name, r": current [\d.,]+, maximum [\d.,]+, mean [\d.,]+")
        self.submit("classify")
        self.assertEqual(len([row for row in self.all("#bars .bar") if re.search(r"\d\.\d{4}$", row.text)]), len(self.all("#bars .track")))
        for table in self.all("table"):
            self.assertTrue(table.find_element(By.TAG_NAME, "caption").get_attribute("textContent"))
            self.assertTrue(table.find_elements(By.CSS_SELECTOR, "thead th[scope=col]"))
            rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
            self.assertEqual(len(rows), len(table.find_elements(By.CSS_SELECTOR, "tbody th[scope=row]")))

    def test_parts_and_news_are_told(self):
        self.assertEqual([len(self.all(name)) for name in ("header", "main", "aside", "nav", "h1")], [1] * 5)
        for name in TABS:
            self.assertEqual(self.one("#%s-status" % name).get_attribute("role"), "status")
        self.assertGreaterEqual(len(self.all("form [role=alert]")), 4)
        self.assertEqual(self.all("#live [aria-live], #live [role=alert]"), [], "figures of each second are no news")


class SideBySide(Checked):
    arguments = ("minilm=" + MINILM, "other=" + MINILM, "--head", HEAD)

    def test_the_other_model_is_as_accessible(self):
        self.one("#other option[value=other]").click()
        self.until(lambda: "other: float32" in self.text("model-facts"))
        for tab in TABS:
            self.submit(tab)
            self.assertTrue(self.one("#%s-other" % tab).is_displayed())
            self.assertAccessible(tab)
            for width in (1280, 768, 375, 320):
                self.screen(width, 900)
                self.assertFits((tab, width))


if __name__ == "__main__":
    main(__name__)
