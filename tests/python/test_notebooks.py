#!/usr/bin/env python3
"""The notebooks of examples/notebooks: their code cells run in order in one namespace, as a kernel runs them.

Jupyter is not needed: the cells are plain Python. The name of the model is found in a Hugging Face cache that links to the
model of the tests, so that nothing is downloaded.
"""
import json
import os
import subprocess
import sys

from common import Case, PROGRAM, ROOT, environment, main, model

FOLDER = os.path.join(ROOT, "examples", "notebooks")
NAME = "sentence-transformers/all-MiniLM-L6-v2"
COMMIT = "0" * 40
# Runs the cells of the JSON list on standard input; then a JSON object of the variables that the arguments name.
RUNNER = """
import json, sys
namespace = {"__name__": "__main__"}
for number, source in enumerate(json.load(sys.stdin), 1):
    exec(compile(source, "code cell %d" % number, "exec"), namespace)
print("\\n" + json.dumps({name: namespace[name] for name in sys.argv[1:]}, default=lambda array: array.tolist()))
"""


def notebook(name):
    with open(os.path.join(FOLDER, name + ".ipynb"), encoding="utf-8") as file:
        return json.load(file)


class Notebooks(Case):
    def run_cells(self, name, *variables):
        """(what the cells print, these variables at the end)"""
        repository = os.path.join(self.folder, "models--" + NAME.replace("/", "--"))
        os.makedirs(os.path.join(repository, "snapshots"))
        os.makedirs(os.path.join(repository, "refs"))
        os.symlink(model("all-MiniLM-L6-v2"), os.path.join(repository, "snapshots", COMMIT))
        with open(os.path.join(repository, "refs", "main"), "w", encoding="utf-8") as file:
            file.write(COMMIT)
        cells = ["".join(cell["source"]) for cell in notebook(name)["cells"] if cell["cell_type"] == "code"]
        self.assertGreater(len(cells), 2)
        done = subprocess.run([sys.executable, "-c", RUNNER, *variables], cwd=FOLDER, input=json.dumps(cells), capture_output=True,
                              text=True, check=False, timeout=600, env=environment(
                                  HF_HUB_CACHE=self.folder, HF_HUB_OFFLINE="1", PATH=os.path.dirname(PROGRAM) + ":" + os.environ["PATH"]))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, json.loads(done.stdout.splitlines()[-1])

    def test_vectors_and_search(self):
        out, found = self.run_cells("vectors_and_search", "similarity", "documents", "a", "b")
        for i, row in enumerate(found["similarity"]):
            self.assertAlmostEqual(row[i], 1, places=5)
        self.assertGreater(found["similarity"][0][1], 0.7)
        self.assertLess(found["similarity"][0][3], 0.2)
        self.assertEqual(len(found["documents"]), 400)
        self.assertNotEqual(found["a"], found["b"])
        scores = [float(line.split()[0]) for line in out.splitlines() if line.startswith("  0.")]
        self.assertEqual(len(scores), 9, out)
        self.assertEqual([sorted(scores[i:i + 3], reverse=True) for i in (0, 3, 6)], [scores[i:i + 3] for i in (0, 3, 6)])
        self.assertGreater(min(scores[::3]), 0.4)

    def test_train_a_head(self):
        out, found = self.run_cells("train_a_head", "fitted", "accuracy")
        self.assertEqual(found["fitted"]["selection"]["folds"], 5)
        self.assertEqual(len([line for line in out.splitlines() if line.startswith("* C ")]), 1)
        self.assertRegex(out, r"'positive', 'score'.* A warm(.|\n)*'negative', 'score'.* Dull")
        self.assertGreater(found["accuracy"]["float32"], 0.65)  # 0.5 by chance
        for dtype in ("bfloat16", "int8"):
            self.assertAlmostEqual(found["accuracy"][dtype], found["accuracy"]["float32"], delta=0.04)

    def test_every_notebook_runs_here(self):
        ours = {name[len("test_"):] for name in dir(self) if name.startswith("test_")}
        names = {name[:-len(".ipynb")] for name in os.listdir(FOLDER) if name.endswith(".ipynb")}
        self.assertTrue(names and names <= ours, names - ours)


if __name__ == "__main__":
    main(__name__)
