#!/usr/bin/env python3
"""gpuserve_context_metrics() of a real model, read by the parser of prometheus-client.

usage: test_prometheus.py LIBGPUSERVE. The model's name has a quote, a backslash
and a newline, which the parser must return unchanged. The environment names a machine of fake GPUs, see
fake_driver/, on one of which it runs.
"""
import ctypes
import os
import sys
import tempfile

from prometheus_client.parser import text_string_to_metric_families

MODEL = "st-dense"
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Error(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("status", ctypes.c_int32),
                ("retry_after_ms", ctypes.c_uint32), ("reserved", ctypes.c_uint32),
                ("message", ctypes.c_char * 512), ("hint", ctypes.c_char * 512)]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.context, self.model = ctypes.c_void_p(), ctypes.c_void_p()
        self.error = Error(struct_size=ctypes.sizeof(Error))

    def call(self, name, *arguments):
        status = getattr(self.lib, "gpuserve_" + name)(*arguments, ctypes.byref(self.error))
        assert status == 0, f"{name}: {status} {self.error.message.decode()}"

    def open(self, path):
        self.call("context_create", ctypes.byref(self.context), None)
        # struct_size and dtype: float32, which the fake GPU can; the rest of gpuserve_model_options
        # at its defaults, and so is what a newer library may have behind it.
        options = (ctypes.c_uint32 * 256)(1024, 1)
        self.call("model_open", ctypes.byref(self.model), self.context, os.fsencode(path), options)

    def embed(self, texts):
        self.lib.gpuserve_model_dim.restype = ctypes.c_size_t
        floats = len(texts) * self.lib.gpuserve_model_dim(self.model)
        self.call("embed", self.model, (ctypes.c_char_p * len(texts))(*map(str.encode, texts)),
                  ctypes.c_size_t(len(texts)), (ctypes.c_float * floats)(),
                  ctypes.c_size_t(floats), None)

    def metrics(self):
        size = ctypes.c_size_t()
        self.call("context_metrics", self.context, None, ctypes.c_size_t(0), ctypes.byref(size))
        page = ctypes.create_string_buffer(size.value + 4096)
        self.call("context_metrics", self.context, page, ctypes.c_size_t(len(page)), None)
        return page.value.decode()

    def close(self):
        self.lib.gpuserve_model_close(ctypes.byref(self.model))
        self.lib.gpuserve_context_unref(ctypes.byref(self.context))


def parse(page):
    """Samples by (name, labels), each once; the families by name."""
    samples, families = {}, {}
    for family in text_string_to_metric_families(page):
        assert family.name not in families, f"{family.name} stands twice"
        assert family.documentation and family.type != "unknown", family.name
        families[family.name] = family
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in samples, f"{key} stands twice"
            samples[key] = sample.value
    return samples, families


def check_histogram(family):
    rising = [(float(s.labels["le"]), s.value) for s in family.samples if s.name.endswith("_bucket")]
    assert rising == sorted(rising) and rising[-1][0] == float("inf"), family.name
    assert all(a[1] <= b[1] for a, b in zip(rising, rising[1:])), family.name
    count = [s.value for s in family.samples if s.name.endswith("_count")]
    assert count == [rising[-1][1]], family.name


def main():
    library = Library(sys.argv[1])
    data = os.path.join(os.path.dirname(HERE), "data", "models", MODEL)
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, 'a "model" \\ in\ntwo lines')
        os.symlink(data, name)
        library.open(name)
        library.embed(["one text", "another, a longer one"])
        library.embed(["one text"])
        samples, families = parse(library.metrics())
        library.close()
    for family in families.values():
        if family.type == "histogram":
            check_histogram(family)
    n_tokens = samples["gpuserve_tokens_total", ()]
    assert n_tokens > 6
    labels = (("device", "cuda:1"), ("dtype", "float32"), ("model", name))
    gpu = (("device", "cuda:1"), ("name", "Fake GPU"),
           ("uuid", "GPU-80000002-0000-0000-0000-000000000002"))
    held = sum(value for (metric, key), value in samples.items()
               if metric == "gpuserve_memory_bytes" and dict(key)["purpose"] != "host")
    wanted = {  # the parser calls every counter _total
        ("gpuserve_items_total", ()): 3,
        ("gpuserve_requests_total", (("result", "ok"),)): 2,
        ("gpuserve_request_seconds_count", ()): 2,
        ("gpuserve_request_queue_seconds_count", ()): 2,
        ("gpuserve_text_tokens_sum", ()): n_tokens,
        ("gpuserve_batch_tokens_sum", ()): n_tokens,
        ("gpuserve_model_items_total", labels): 3,
        ("gpuserve_model_tokens_total", labels): n_tokens,
        ("te_request_success_total", ()): 2,
        ("te_embed_count_total", ()): 3,
        ("te_embed_duration_count", ()): 3,
        ("te_request_duration_count", ()): 2,
        ("te_predict_count_total", ()): 0,
        ("te_queue_size", ()): 0,
        ("gpuserve_device_memory_bytes", gpu): 80 << 30,
        ("gpuserve_device_load_ratio", gpu): 0.49,
        ("gpuserve_device_temperature_celsius", gpu): 50,
        ("gpuserve_device_power_watts", gpu): 350,
        ("gpuserve_device_processes", gpu): 1,
        ("gpuserve_device_held_bytes", gpu): held,
        ("te_request_input_length_sum", ()): n_tokens,
    }
    wrong = 0
    for (metric, key), value in wanted.items():
        got = samples.get((metric, key))
        wrong += got != value
        if got != value:
            print(f"FAILED {metric} {dict(key)}: {got}, not {value}")
    memory = {dict(key)["purpose"]: value for (metric, key), value in samples.items()
              if metric == "gpuserve_model_memory_bytes"}
    assert set(memory) == {"weights", "workspace", "stream", "host"} and min(memory.values()) > 0
    for purpose, value in memory.items():
        assert samples["gpuserve_memory_bytes", (("purpose", purpose),)] == value
    print(f"{len(families)} families, {len(samples)} samples")
    print(f"{len(wanted) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
