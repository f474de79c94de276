#!/usr/bin/env python3
"""The page of `gpuserve embed --plot`: plane, clusters and neighbours against numpy on the vectors of the same texts."""
import json
import os
import re

import numpy as np

from common import Case, gpuserve, main, model

MODEL = model("all-MiniLM-L6-v2")
TOPICS = [
    ["The goalkeeper saved the penalty", "The team won the final", "The striker scored twice", "She broke the marathon record",
     "The coach praised the defence", "The match went to five sets"],
    ["Simmer the sauce for ten minutes", "Add garlic and basil to the pan", "The bread needs an hour to rise",
     "Salt brings out the flavour", "Roast the vegetables with olive oil", "The soup tastes of ginger"],
    ["The bank raised interest rates", "Shares fell after the report", "The company paid a higher dividend",
     "Inflation slowed last month", "Investors bought bonds", "The startup raised ten million"],
]
TEXTS = [text for topic in TOPICS for text in topic]


class Map(Case):
    def data(self, texts, *options):
        page = self.path("map.html")
        done = self.works("embed", MODEL, *options, "--plot", page, stdin="\n".join(texts) + "\n")
        with open(page, encoding="utf-8") as file:
            self.page = file.read()
        found = re.search('<script type="application/json" id="data">(.*?)</script>', self.page, re.S)
        return done, json.loads(found[1])

    def test_plane(self):
        vectors = self.path("vectors.npy")
        done, data = self.data(TEXTS, "-o", vectors)
        self.assertEqual(done.out, "")
        self.assertEqual(data["texts"], TEXTS)
        self.assertEqual(data["model"], "all-MiniLM-L6-v2")
        rows = np.load(vectors).astype(np.float64)
        centered = rows - rows.mean(0)
        left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
        points = np.array(data["points"])
        for axis in range(2):
            wanted = left[:, axis] * sizes[axis]
            sign = np.sign(wanted @ points[:, axis])
            self.assertLess(np.abs(points[:, axis] - sign * wanted).max(), 2e-3)
            self.assertAlmostEqual(data["explained"][axis], sizes[axis] ** 2 / (sizes ** 2).sum(), delta=2e-4)
        cosines = rows @ rows.T
        np.fill_diagonal(cosines, -2)
        for i, neighbours in enumerate(data["neighbours"]):
            order = np.argsort(-cosines[i])[:5]
            self.assertEqual([other for other, _ in neighbours], list(order))
            self.assertLess(np.abs(np.array([score for _, score in neighbours]) - cosines[i][order]).max(), 1e-4)

    def test_clusters(self):
        """k-means: each vector is next to the mean of its cluster, and the sum of squares is not above that of the topics."""
        vectors = self.path("vectors.npy")
        _, data = self.data(TEXTS, "-o", vectors)
        rows = np.load(vectors).astype(np.float64)
        clusters = np.array([point[2] for point in data["points"]])

        def means(of):
            return np.array([rows[of == one].mean(0) for one in range(3)])

        def squares(of):
            return ((rows - means(of)[of]) ** 2).sum()

        self.assertEqual(len(data["middles"]), 3)  # sqrt(18 / 2)
        distances = ((rows[:, None] - means(clusters)[None]) ** 2).sum(2)
        self.assertEqual(list(distances.argmin(1)), list(clusters))
        self.assertLessEqual(squares(clusters), squares(np.repeat([0, 1, 2], 6)) + 1e-6)
        for one, middle in enumerate(data["middles"]):
            members = np.flatnonzero(clusters == one)
            self.assertEqual(members[distances[members, one].argmin()], middle)

    def test_only_the_page(self):
        done, data = self.data(TEXTS)
        again = self.page
        self.assertEqual(done.out, "")
        self.assertEqual(self.data(TEXTS)[1], data)
        self.assertEqual(self.page, again)
        self.assertNotRegex(self.page, r'(src|href)=|https?:|@import')

    def test_texts_stay_texts(self):
        hostile = ["</script><script>alert(1)</script>", "<!-- \u2028 \\ \"quoted\"", "x" * 399 + "\u00e9" + "y" * 50, "a", "a", "a"]
        _, data = self.data(hostile)
        self.assertEqual(data["texts"], [hostile[0], hostile[1], "x" * 399, "a", "a", "a"])
        self.assertEqual(self.page.count("</script>"), 2)

    def test_equal_and_few_texts(self):
        _, data = self.data(["the same"] * 7)
        self.assertEqual(len(data["middles"]), 1)
        self.assertEqual([len(one) for one in data["neighbours"]], [5] * 7)
        _, data = self.data(["one", "two", "three"])
        self.assertEqual([len(one) for one in data["neighbours"]], [2] * 3)
        self.fails(1, "2 texts; a map needs 3", "embed", MODEL, "--plot", self.path("map.html"), stdin="a\nb\n")
        self.assertEqual([name for name in os.listdir(self.folder) if name != "map.html"], [])

    def test_what_is_refused(self):
        for options in (["--sparse"], ["--outputs", "dense"], ["--chunking", "window"]):
            self.fails(2, "--plot", "embed", MODEL, "--plot", self.path("map.html"), *options, "text")
        self.fails(1, "No such file or directory", "embed", MODEL, "--plot", self.path("none/map.html"), stdin="a\nb\nc\n")
        done = gpuserve("embed", "--random", "bert-tiny", "--quiet", "--plot", self.path("map.html"),
                        stdin="".join("%d\n" % i for i in range(20001)))
        self.assertEqual(done.returncode, 1)
        self.assertIn("more than 20000 texts", done.err)


if __name__ == "__main__":
    main(__name__)
