"""A gpuserve model as an MLflow model: pyfunc flavor with a loader module.

    import mlflow, mlflow_gpuserve
    mlflow_gpuserve.log_model("/models/all-MiniLM-L6-v2", name="minilm", options={"dtype": "int8"})
    mlflow.pyfunc.load_model("models:/minilm/1").predict(["a text", "another"])

Input: a list of texts, a pandas Series, or a DataFrame whose first column (or column `text`) holds them. Output:
a float32 array [texts, dimensions]; a classifier gives [texts, labels]. The options are those of gpuserve.Model.
The directory is copied into the artifact, so the model loads without a network.
"""
import json
import os


class GpuserveModel:
    """What mlflow.pyfunc.load_model() wraps."""

    def __init__(self, directory, options):
        import gpuserve  # the machine that logs a model needs it no more than the tracking server does

        self.model = gpuserve.Model(directory, **options)

    def predict(self, model_input, params=None):
        if params:
            raise ValueError("gpuserve takes no params, got " + ", ".join(sorted(params)))
        texts = column(model_input)
        return self.model.predict_proba(texts) if self.model.labels else self.model.encode(texts)


def column(model_input):
    """The texts of a list, a Series or a DataFrame."""
    if hasattr(model_input, "columns"):
        names = list(model_input.columns)
        model_input = model_input["text" if "text" in names else names[0]]
    texts = list(model_input)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError("row %d is %s, not a text" % (row, type(text).__name__))
    return texts


def _load_pyfunc(path):
    """Called by MLflow with the directory that log_model() stored."""
    options = {}
    settings = os.path.join(path, "gpuserve.json")
    if os.path.exists(settings):
        with open(settings, encoding="utf-8") as file:
            options = json.load(file)
    return GpuserveModel(os.path.join(path, "model"), options)


def save_tree(directory, target, options):
    """The directory that _load_pyfunc() reads."""
    import shutil

    shutil.copytree(directory, os.path.join(target, "model"))
    with open(os.path.join(target, "gpuserve.json"), "w", encoding="utf-8") as file:
        json.dump(options or {}, file)


def log_model(directory, name, options=None, **more):
    """Log and register a model directory; `more` goes to mlflow.pyfunc.log_model()."""
    import tempfile

    import mlflow

    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "data")
        os.mkdir(data)
        save_tree(directory, data, options)
        return mlflow.pyfunc.log_model(
            name=name, loader_module="mlflow_gpuserve", data_path=data,
            code_paths=[os.path.abspath(__file__)], pip_requirements=["gpuserve"], **more)
