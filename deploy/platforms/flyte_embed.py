"""A Flyte task that embeds texts on a GPU node, and a workflow that maps it over chunks.

    pyflyte run deploy/platforms/flyte_embed.py embed_all --texts '["one", "two"]'

On a cluster the task runs in the image of deploy/docker/Dockerfile.cuda with Python and the gpuserve wheel; for a
shared GPU name the resource of deploy/kubernetes/shared in a PodTemplate instead of `gpu="1"`. A process keeps its
model between the calls of one Pod.
"""
import functools
from typing import List

from flytekit import Resources, map_task, task, workflow

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
CHUNK = 1024


@functools.lru_cache(maxsize=1)
def model():
    import gpuserve

    return gpuserve.Model(MODEL)


@task(requests=Resources(cpu="2", mem="2Gi"), limits=Resources(cpu="4", mem="4Gi", gpu="1"), retries=2)
def embed(texts: List[str]) -> List[List[float]]:
    return model().encode(texts).tolist()


@task
def chunks(texts: List[str]) -> List[List[str]]:
    return [texts[at:at + CHUNK] for at in range(0, len(texts), CHUNK)]


@task
def joined(parts: List[List[List[float]]]) -> List[List[float]]:
    return [vector for part in parts for vector in part]


@workflow
def embed_all(texts: List[str]) -> List[List[float]]:
    return joined(parts=map_task(embed)(texts=chunks(texts=texts)))
