#!/usr/bin/env python3
"""Ray actors on a GPU take the part of it that the model's memory does, on the emulated GPU.

    test_gpus.py            through `./dev cluster`
"""
import math
import os

from nodes import enter_namespace

MODEL = os.path.join(os.environ["GPUSERVE_TEST_MODELS"], "splade-tiny")
TEXTS = [f"text number {i}" for i in range(300)]
OPTIONS = {"device": "cuda:0", "dtype": "float32", "max_batch_tokens": 512, "pooling": "mean"}


def main():
    enter_namespace()
    os.environ["GPUSERVE_CUDA_TIMEOUT_MS"] = "600000"    # an emulated GPU is as slow as the machine is busy
    import numpy as np
    import ray

    from gpuserve import Model, select

    footprint = Model.footprint(MODEL, **OPTIONS)
    on_device = sum(footprint[name + "_bytes"] for name in ("weights", "workspace", "stream"))
    memory = int(on_device * 3.3)
    os.environ["GSV_EMU_MEMORY"] = str(memory)     # of the emulated GPUs of Ray's processes

    import gpuserve.ray as on_ray

    ray.init(num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False,
             logging_level="ERROR", _node_ip_address="127.0.0.1")
    ray.data.DataContext.get_current().enable_progress_bars = False
    assert select("cuda:0").memory_bytes > memory, "this process took the limit of the others"
    share = math.ceil(100 / 3.3) / 100
    pool, threads = on_ray._pool(MODEL, None, None, None, OPTIONS)
    assert pool["num_gpus"] == share, (pool, share)
    assert (pool["num_cpus"], threads["n_threads"]) == (2, 2), pool

    dataset = ray.data.from_items([{"text": text} for text in TEXTS], override_num_blocks=4)
    rows, held = [], 0.0
    for row in on_ray.embed(dataset, MODEL, "text", batch_size=50, cpus_per_actor=1, actors=2,
                            **OPTIONS).iter_rows():
        if not rows:
            held = 1 - ray.available_resources().get("GPU", 0)
        rows.append(row)
    assert abs(held - 2 * share) < 1e-6, f"two actors hold {held} of the GPU, not twice {share}"
    vectors = {row["text"]: row["embedding"] for row in rows}
    expected = Model(MODEL, **OPTIONS).encode(TEXTS)
    assert len(rows) == len(TEXTS)
    found = np.stack([vectors[text] for text in TEXTS])
    assert np.allclose(found, expected, rtol=1e-3, atol=1e-3), (
        f"vectors are off by up to {np.abs(found - expected).max()}")

    # A model that needs more than a GPU has is refused before any actor is made.
    try:
        on_ray._pool(MODEL, None, None, None, {**OPTIONS, "max_batch_tokens": 100_000})
    except on_ray.InvalidError as error:
        assert "a GPU has" in str(error), error
    else:
        raise AssertionError("taken")
    assert on_ray._gpus_of_an_actor(MODEL, {"device": "cpu"}) == 0
    ray.shutdown()
    print(f"the actors took {share} of a GPU each")
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
