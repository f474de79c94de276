"""Ray: embedding on one machine or a cluster with the same call.

    import ray, gpuserve.ray
    vectors = gpuserve.ray.embed(ray.data.read_parquet("s.parquet"), MODEL, "text")

    python -m gpuserve.ray --model MODEL --input s.parquet --output o.parquet [--address HOST:PORT]

Each node has one actor with one copy of the model, which uses all cores assigned to it: more
actors per node would mean more copies. On nodes with GPUs each GPU has one actor, which reserves
the fraction of the GPU that the model's footprint needs; the rest stays available.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import sys
from typing import Any, Dict, List, Optional, Tuple

from . import _parquet
from ._progress import Progress
from .devices import select
from .errors import GpuserveError, InvalidError
from .model import Model

import pyarrow as pa
import ray
import ray.data


class _Embedder:
    """An actor of a pool: one model, opened once."""

    def __init__(self, model: str, options: Dict[str, Any]) -> None:
        self._model = Model(model, **options)


class _Batches(_Embedder):
    """Maps batches of rows to rows with vectors."""

    def __init__(self, model: str, options: Dict[str, Any], column: str, output_column: str,
                 encode: Dict[str, Any]) -> None:
        super().__init__(model, options)
        self._column, self._output_column, self._encode = column, output_column, encode

    def __call__(self, batch: pa.Table) -> pa.Table:
        texts = _parquet.texts_of(batch, self._column)
        return _parquet.with_vectors(batch, self._model.encode(texts, **self._encode),
                                     self._output_column)


class _Units(_Embedder):
    """Computes units and writes their parts; returns the finished work."""

    def __init__(self, model: str, options: Dict[str, Any], job: Tuple[Any, ...]) -> None:
        super().__init__(model, options)
        self._job = _parquet.Job(*job)

    def __call__(self, batch: Dict[str, Any]) -> Dict[str, List[int]]:
        units = [_parquet.Unit(int(number), str(path), int(first), int(n_rows))
                 for number, path, first, n_rows
                 in zip(batch["number"], batch["path"], batch["first"], batch["n_rows"])]
        return {"rows": [_parquet.embed_unit(self._job, unit, self._model) for unit in units]}


def gpu_share(footprint_bytes: int, gpu_bytes: int) -> float:
    """The fraction of a GPU that a model needs, in hundredths, rounded up; a fraction above 1 is an error."""
    share = math.ceil(100 * footprint_bytes / gpu_bytes) / 100
    if share > 1:
        raise InvalidError(f"the model takes {footprint_bytes} bytes, a GPU has {gpu_bytes}",
                           "give a smaller max_batch_tokens, or another dtype")
    return share


def _share_here(model: str, options: Dict[str, Any]) -> float:
    """On a node with a GPU: the fraction of it that the model needs; 0 if it would run on the CPU."""
    device = select(options.get("device") or "auto")
    if device.selector == "cpu":
        return 0.0
    bytes_of = Model.footprint(model, **options)
    on_device = bytes_of["weights_bytes"] + bytes_of["workspace_bytes"] + bytes_of["stream_bytes"]
    return gpu_share(on_device, device.memory_bytes)


def _gpus_of_an_actor(model: str, options: Dict[str, Any]) -> float:
    """GPU fraction per actor, from the model's memory footprint on a node with a GPU; 0 without one."""
    if options.get("device") == "cpu" or not ray.cluster_resources().get("GPU"):
        return 0.0
    asked = ray.remote(num_cpus=0, num_gpus=0.01)(_share_here)
    share: float = ray.get(asked.remote(model, options))
    # Ray fills one GPU before the next: more than half of each gives one actor per GPU.
    several = any(node["Resources"].get("GPU", 0) > 1 for node in _alive())
    return max(share, 0.51) if share and several else share


def _alive() -> List[Dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _resources(cpus_per_actor: Optional[float], num_gpus: float) -> Dict[str, Any]:
    """Resources per actor. By default all cores of the smallest node: one actor per node. With
    GPUs, each GPU's share of the cores: one actor per GPU.
    """
    if cpus_per_actor is None:
        parts = [node["Resources"].get("CPU", 0) // max(1, node["Resources"].get("GPU", 0))
                 if num_gpus else node["Resources"].get("CPU", 0)
                 for node in _alive() if not num_gpus or node["Resources"].get("GPU", 0)]
        cpus_per_actor = max(1, min((n for n in parts if n > 0), default=1))
    # Ray Data restarts lost actors and retries their tasks itself.
    return {"num_cpus": cpus_per_actor, "num_gpus": num_gpus or None}


def _n_actors(cpus_per_actor: float, num_gpus: float) -> int:
    """Number of actors that fit the cluster's free resources."""
    total = 0
    for node in _alive():
        has = node["Resources"]
        room = has.get("CPU", 0) // cpus_per_actor
        total += int(min(room, has.get("GPU", 0) // num_gpus) if num_gpus else room)
    if total < 1:
        raise InvalidError(f"no node has {cpus_per_actor} cores and {num_gpus} GPUs free",
                           "lower cpus_per_actor")
    return total


def _pool(model: str, cpus_per_actor: Optional[float], num_gpus: Optional[float],
          actors: Optional[int], options: Dict[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Arguments of map_batches for a pool of actors, and their model options."""
    gpus = _gpus_of_an_actor(model, options) if num_gpus is None else num_gpus
    resources = _resources(cpus_per_actor, gpus)
    n = actors or _n_actors(resources["num_cpus"], gpus)
    threads = {"n_threads": max(1, int(resources["num_cpus"])), **options}
    # The minimum is one actor, so that the job continues if a node is lost and its actor cannot be placed.
    return {"compute": ray.data.ActorPoolStrategy(min_size=1, max_size=n, initial_size=n),
            **resources}, threads


def embed(dataset: Any, model: str, column: str, *, output_column: str = "embedding",
          batch_size: int = 1024, actors: Optional[int] = None,
          cpus_per_actor: Optional[float] = None, num_gpus: Optional[float] = None,
          prompt_name: Optional[str] = None, normalize_embeddings: bool = False,
          truncate_dim: Optional[int] = None, **options: Any) -> Any:
    """A Ray Data dataset with added vectors of a text column.

    Args:
        dataset: a ``ray.data.Dataset``.
        model: a directory or name that every node can open.
        column: column of texts; a null is an error.
        actors: max number of actors; default: as many as fit the nodes.
        cpus_per_actor: default: all cores of the smallest node, one copy of the model per node; on
            nodes with GPUs each GPU's share of them.
        num_gpus: per actor; default: from the model's memory footprint, see :func:`gpu_share`;
            0: none.
        prompt_name, normalize_embeddings, truncate_dim: as for :meth:`gpuserve.Model.encode`.
        options: as for :class:`gpuserve.Model`.

    Returns:
        A dataset, computed when it is consumed. The new column is a fixed-size list of float32.
    """
    pool, threads = _pool(model, cpus_per_actor, num_gpus, actors, options)
    encode = {"prompt_name": prompt_name, "normalize_embeddings": normalize_embeddings,
              "truncate_dim": truncate_dim}
    return dataset.map_batches(
        _Batches, fn_constructor_args=(model, threads, column, output_column, encode),
        batch_format="pyarrow", batch_size=batch_size, **pool)


def embed_parquet(input: str, output: str, model: str, column: str = "text", *,  # noqa: A002
                  output_column: str = "embedding", unit_rows: int = _parquet.UNIT_ROWS,
                  actors: Optional[int] = None, cpus_per_actor: Optional[float] = None,
                  num_gpus: Optional[float] = None, show_progress_bar: bool = False,
                  prompt_name: Optional[str] = None, normalize_embeddings: bool = False,
                  truncate_dim: Optional[int] = None, **options: Any) -> int:
    """Embed Parquet files into Parquet files on the connected Ray cluster.

    Restartable: a repeated call with the same arguments computes only missing parts. A lost node
    costs only its current work. Every node must be able to read input and output.

    Args:
        input: a file, a folder of them, or a pattern.
        output: ends in ``.parquet``: one file; else a folder of parts.
        unit_rows: rows computed and written together.

    Returns:
        The row count of the whole output.
    """
    folder = output + ".parts" if output.endswith(".parquet") else output
    encode = {"prompt_name": prompt_name, "normalize_embeddings": normalize_embeddings,
              "truncate_dim": truncate_dim}
    job = _parquet.Job(os.path.abspath(input), os.path.abspath(folder), model, column,
                       output_column, options, encode)
    every = _parquet.units_of(job, unit_rows)
    left = _parquet.plan(job, unit_rows)
    bar = Progress(sum(unit.n_rows for unit in every), show_progress_bar)
    bar.advance(sum(unit.n_rows for unit in every) - sum(unit.n_rows for unit in left))
    if left:
        pool, threads = _pool(model, cpus_per_actor, num_gpus, actors, options)
        units = ray.data.from_items([unit._asdict() for unit in left],
                                    override_num_blocks=len(left))
        done = units.map_batches(_Units, fn_constructor_args=(model, threads, tuple(job)),
                                 batch_size=1, **pool)
        for row in done.iter_rows():
            bar.advance(row["rows"])
    bar.close()
    if folder == output:
        return sum(unit.n_rows for unit in every)
    n_rows = _parquet.merge(job, output, unit_rows)
    shutil.rmtree(folder)
    return n_rows


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpuserve.ray", description=(
        "Embed a text column of Parquet files, on this machine or on a Ray cluster."))
    parser.add_argument("--input", required=True, help="a file, a folder, or a pattern")
    parser.add_argument("--output", required=True, help="NAME.parquet, or a folder for parts")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2",
                        help="a directory or a name in the Hugging Face cache, on every node")
    parser.add_argument("--column", default="text", help="of texts")
    parser.add_argument("--output-column", default="embedding")
    parser.add_argument("--address", help="of a cluster; default: Ray on this machine alone")
    parser.add_argument("--device", help='default "auto"')
    parser.add_argument("--dtype", help="float32, float16, int8, ...")
    parser.add_argument("--actors", type=int, help="most actors; default one a node")
    parser.add_argument("--cpus-per-actor", type=float)
    parser.add_argument("--num-gpus", type=float,
                        help="of each actor; default: by the memory that the model takes; 0: none")
    parser.add_argument("--unit-rows", type=int, default=_parquet.UNIT_ROWS,
                        help="rows computed and written together")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser.parse_args()


def main() -> int:
    """The command line; returns the exit status."""
    given = _arguments()
    ray.init(address=given.address, log_to_driver=False, logging_level="ERROR",
             include_dashboard=False if given.address is None else None)
    ray.data.DataContext.get_current().enable_progress_bars = False
    options = {name: value for name, value in (("device", given.device), ("dtype", given.dtype))
               if value is not None}
    try:
        n_rows = embed_parquet(
            given.input, given.output, given.model, given.column,
            output_column=given.output_column, unit_rows=given.unit_rows, actors=given.actors,
            cpus_per_actor=given.cpus_per_actor, num_gpus=given.num_gpus,
            show_progress_bar=not given.quiet, **options)
    except GpuserveError as error:
        print(f"gpuserve.ray: {error}", file=sys.stderr)
        return 1
    print(f"{n_rows} rows in {given.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
