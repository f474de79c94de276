#!/usr/bin/env python3
"""deploy/platforms: the MLflow model as MLflow calls it, and the Flyte workflow with decorators that only pass through."""
import importlib
import os
import sys
import tempfile
import types

import numpy as np

from common import ROOT, Case, main
from gpuserve import Model

FOLDER = os.path.join(ROOT, "tests", "data", "long-texts", "model")
TEXTS = ["The fox runs.", "It was red!"]
sys.path.insert(0, os.path.join(ROOT, "deploy", "platforms"))


class Frame:
    """Two columns of a pandas DataFrame, as far as a model looks at one."""
    columns = ["id", "text"]

    def __getitem__(self, name):
        return {"id": [1, 2], "text": TEXTS}[name]


class MLflow(Case):
    def setUp(self):
        self.flavor = importlib.import_module("mlflow_gpuserve")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.flavor.save_tree(FOLDER, folder.name, {"device": "cpu", "max_tokens": 16})
        self.model = self.flavor._load_pyfunc(folder.name)
        self.addCleanup(self.model.model.close)

    def test_the_stored_directory_gives_the_same_vectors(self):
        with Model(FOLDER, device="cpu") as model:
            want = model.encode(TEXTS)
        for given in (TEXTS, Frame()):
            found = self.model.predict(given)
            self.assertEqual(found.dtype, np.float32)
            np.testing.assert_array_equal(found, want)

    def test_the_options_are_stored(self):
        self.assertEqual(self.model.model.max_seq_length, 16)

    def test_what_is_no_text_is_refused(self):
        with self.assertRaisesRegex(ValueError, "row 1 is int, not a text"):
            self.model.predict(["one", 2])
        with self.assertRaisesRegex(ValueError, "no params, got a, b"):
            self.model.predict(["one"], params={"b": 1, "a": 2})


class Flyte(Case):
    def test_the_workflow(self):
        kit = types.ModuleType("flytekit")
        kit.Resources = dict

        def passed(function=None, **options):
            if function is None:
                return passed
            return lambda **named: function(**named)

        kit.task = kit.workflow = passed
        kit.map_task = lambda task: lambda **named: [task(**{key: value}) for key, values in named.items() for value in values]
        sys.modules["flytekit"] = kit
        self.addCleanup(sys.modules.pop, "flytekit")
        flow = importlib.import_module("flyte_embed")
        flow.MODEL, flow.CHUNK = FOLDER, 3
        texts = TEXTS * 4
        with Model(FOLDER) as model:
            want = model.encode(texts)
        found = flow.embed_all(texts=texts)
        flow.model().close()
        np.testing.assert_array_equal(np.array(found, dtype=np.float32), want)


if __name__ == "__main__":
    main(__name__)
