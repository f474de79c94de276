#!/usr/bin/env python3
"""What goes wrong in Python programs: each a clear error, and the process lives."""
import os
import pickle
import signal
import subprocess
import sys
import time

import numpy as np

import gpuserve
from common import PATIENCE, Case, main, model
from gpuserve import Model

TINY = "splade-tiny"


def python(code, env=None, **options):
    """Run a program of its own, which has `path` of the tiny model."""
    return subprocess.run([sys.executable, "-c", f"path = {model(TINY)!r}\n" + code],
                          capture_output=True, text=True, timeout=PATIENCE, check=False,
                          env={**os.environ, **(env or {})}, **options)


class Library(Case):
    def test_a_missing_library_is_told_with_the_places_looked_at(self):
        done = python("import gpuserve\ngpuserve.Model(path)",
                      {"GPUSERVE_LIBRARY": "/nonexistent/libgpuserve.so"})
        self.assertIn("LibraryError: libgpuserve cannot be loaded", done.stderr)
        self.assertIn("/nonexistent/libgpuserve.so", done.stderr)
        self.assertIn("GPUSERVE_LIBRARY", done.stderr)

    def other(self, source):
        library = self.path("other.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, self.write("other.c", source)],
                       check=True)
        return python("import gpuserve\ngpuserve.Model(path)", {"GPUSERVE_LIBRARY": library})

    def test_another_library_is_no_libgpuserve(self):
        self.assertIn("is no libgpuserve of version", self.other("int x;").stderr)

    def test_another_binary_interface_is_refused(self):
        from gpuserve._ffi import abi as _abi

        functions = "".join(f"int {name}(void) {{ return 7; }}\n" for name in _abi.FUNCTIONS)
        self.assertIn("has binary interface 7, this package needs 0", self.other(functions).stderr)


class Inputs(Case):
    @classmethod
    def setUpClass(cls):
        cls.model = Model(model(TINY))

    @classmethod
    def tearDownClass(cls):
        cls.model.close()

    def refused(self, kind, message, *arguments, **options):
        with self.assertRaises(kind) as caught:
            self.model.encode(*arguments, **options)
        self.assertIn(message, str(caught.exception))

    def test_what_is_no_text(self):
        self.refused(TypeError, "inputs is None")
        self.refused(TypeError, "inputs is bytes", b"text")
        self.refused(TypeError, "inputs is int", 3)
        self.refused(TypeError, "text 1 is NoneType", ["a", None])
        self.refused(TypeError, "text 1700 is float", ["a"] * 1700 + [1.5])
        self.refused(TypeError, "give one of them", "a", sentences="b")
        self.refused(TypeError, "an array of 0 dimensions", np.array("a"))
        self.refused(TypeError, "an array of 2 dimensions", np.array([["a", "b"]]))
        self.refused(ValueError, "text 1 has a lone surrogate at character 2", ["a", "ab\ud800"])

    def test_options_that_do_not_exist(self):
        self.refused(ValueError, "known are float32, float16, int8, uint8, binary, ubinary", "a", precision="int3")
        self.refused(ValueError, "known are default, right", "a", truncation="middle")
        self.refused(ValueError, "1 to 128", "a", truncate_dim=129)
        self.refused(ValueError, "batch_size is 0", "a", batch_size=0)
        self.refused(TypeError, "batch_size is float", "a", batch_size=1.5)
        self.refused(TypeError, "truncate_dim is str", "a", truncate_dim="3")
        self.refused(TypeError, "prompt is int", "a", prompt=5)
        self.refused(TypeError, "prompt_name is int", "a", prompt_name=5)
        self.refused(ValueError, "prompt holds a NUL at character 1", "a", prompt="x\0y")
        self.refused(ValueError, "prompt has a lone surrogate", "a", prompt="\ud800")
        self.refused(TypeError, "expected_fingerprint is int", "a", expected_fingerprint=5)
        self.refused(ValueError, "this model is on cpu", "a", device="cuda:0")
        self.refused(ValueError, "output_value", "a", output_value="nonsense")
        with self.assertRaises(ValueError):
            Model(model(TINY), dtype="float31")
        with self.assertRaisesRegex(ValueError, 'warmup "hot" is unknown'):
            Model(model(TINY), warmup="hot")
        with self.assertRaises(TypeError):
            Model(None)

    def test_arrays_that_cannot_be_written(self):
        dim = self.model.dim
        self.refused(ValueError, "float32", "a", out=np.zeros((1, dim)))
        self.refused(ValueError, f"[1, {dim}]", "a", out=np.zeros((2, dim), np.float32))
        self.refused(ValueError, "strides", ["a", "b"],
                     out=np.zeros((dim, 2), np.float32).T)
        self.refused(ValueError, "strides", ["a", "b"], out=np.zeros((2, dim), np.float32)[::-1])
        locked = np.zeros((1, dim), np.float32)
        locked.flags.writeable = False
        self.refused(ValueError, "read-only", "a", out=locked)

    def test_models_that_are_not_there(self):
        with self.assertRaises(FileNotFoundError) as caught:
            Model("/nonexistent/model")
        self.assertIn("/nonexistent/model", str(caught.exception))
        with self.assertRaises(gpuserve.errors.DeviceError):
            Model(model(TINY), device="cuda:0")
        with self.assertRaises(ValueError):
            Model(model(TINY), device="gpu please")

    def test_ids_outside_the_vocabulary(self):
        with self.assertRaises(ValueError):
            self.model.decode([10 ** 6])
        with self.assertRaises(ValueError):
            self.model.decode([2 ** 40])

    def test_ids_that_are_no_list_of_lists(self):
        with self.assertRaisesRegex(ValueError, "ids of 0 dimensions"):
            self.model.encode_ids([101, 102])  # one list, where lists of them are wanted
        with self.assertRaisesRegex(ValueError, "ids of 2 dimensions"):
            self.model.decode([[101, 102]])

    def test_vectors_that_cannot_be_compared(self):
        with self.assertRaisesRegex(ValueError, "of 2 numbers and of 3"):
            self.model.similarity([[1, 2]], [[1, 2, 3]])
        with self.assertRaisesRegex(ValueError, "2 vectors and 1"):
            self.model.similarity_pairwise([[1, 2], [3, 4]], [[1, 2]])


class Life(Case):
    def test_use_after_close(self):
        closed = Model(model(TINY))
        closed.close()
        closed.close()
        for use in (lambda: closed.encode("a"), closed.info, lambda: closed.tokenize("a")):
            with self.assertRaises(gpuserve.errors.ClosedError):
                use()
        self.assertEqual(repr(closed), "<gpuserve.Model, closed>")

    def test_a_model_is_not_pickled(self):
        with Model(model(TINY)) as opened, self.assertRaises(TypeError):
            pickle.dumps(opened)

    def test_fork_is_told_with_the_way_out(self):
        done = python("""
import multiprocessing, gpuserve
m = gpuserve.Model(path)
m.encode("a")
def child(queue):
    try:
        m.encode("a")
    except gpuserve.errors.ForkedError as error:
        queue.put(str(error))
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
print(queue.get())
process.join()
print("child", process.exitcode, m.encode("a").shape)
""")
        self.assertIn("spawn", done.stdout, done.stderr)
        self.assertIn("child 0 (128,)", done.stdout, done.stderr)

    def test_the_interpreter_ends_with_work_in_flight(self):
        done = python("""
import threading, gpuserve
m = gpuserve.Model(path)
futures = [m.submit([f"word{i} " * 150 for i in range(1000)]) for _ in range(2)]
threading.Thread(target=lambda: m.encode([f"word{i} " * 150 for i in range(20000)]), daemon=True).start()
print("over")
""")
        self.assertEqual((done.returncode, done.stdout), (0, "over\n"), done.stderr)

    def test_control_c_stops_a_long_encode(self):
        program = subprocess.Popen(
            [sys.executable, "-c", f"""
import gpuserve
m = gpuserve.Model({model(TINY)!r})
print("ready", flush=True)
try:
    m.encode([f"word{{i}} " * 150 for i in range(100000)])
except KeyboardInterrupt:
    print("stopped", m.encode("a").shape, flush=True)
"""], stdout=subprocess.PIPE, text=True)
        self.assertEqual(program.stdout.readline(), "ready\n")
        time.sleep(1)
        program.send_signal(signal.SIGINT)
        out, _ = program.communicate(timeout=PATIENCE)
        self.assertEqual((program.returncode, out), (0, "stopped (128,)\n"))

    def test_an_exception_does_not_leak_requests(self):
        with Model(model(TINY)) as opened:
            for _ in range(50):
                with self.assertRaises(TypeError):
                    opened.encode(["a"] * 3000 + [None], batch_size=100)
            self.assertEqual(opened.encode("a").shape, (128,))


if __name__ == "__main__":
    main(__name__)
