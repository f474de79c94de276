"""Restartable embedding of Parquet files in parts, used by the Ray and Dask integrations.

The input is divided into units of some thousand rows. Each unit becomes one part file, written
under a temporary name and renamed when complete. An existing part is therefore complete, and a unit
without a part is pending. An interrupted job resumes with the pending units. A unit computed twice,
because a worker was assumed dead, has one part.
"""

# The framework has no types for pyright.
# pyright: basic
from __future__ import annotations

import glob
import hashlib
import json
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ._ffi.calls import Floats
from .errors import InvalidError, NotFoundError
from .model import Model

UNIT_ROWS = 4096
PLAN = "plan.json"


class Unit(NamedTuple):
    """Consecutive rows of one input file."""

    number: int
    path: str
    first: int
    n_rows: int

    def part(self, folder: str) -> str:
        """The file of its result."""
        return os.path.join(folder, f"part-{self.number:07d}.parquet")


class Job(NamedTuple):
    """Parameters of the job; equal in every process."""

    input: str
    output: str
    model: str
    column: str
    output_column: str
    options: Dict[str, Any]
    encode: Dict[str, Any]


def inputs_of(path: str) -> List[str]:
    """The Parquet files at a path: a file, a folder, or a pattern."""
    if os.path.isdir(path):
        path = os.path.join(path, "**", "*.parquet")
    found = sorted(glob.glob(path, recursive=True))
    if not found:
        raise NotFoundError(f"{path}: no Parquet files")
    return found


def units_of(job: Job, unit_rows: int = UNIT_ROWS) -> List[Unit]:
    """The units of a job, from the file footers only."""
    units: List[Unit] = []
    for path in inputs_of(job.input):
        footer = pq.ParquetFile(path)
        if job.column not in footer.schema_arrow.names:
            raise InvalidError(f'{path} has no column "{job.column}"',
                               "its columns are " + ", ".join(footer.schema_arrow.names))
        n_rows = footer.metadata.num_rows
        for first in range(0, n_rows, unit_rows):
            units.append(Unit(len(units), path, first, min(unit_rows, n_rows - first)))
    return units


def plan(job: Job, unit_rows: int = UNIT_ROWS) -> List[Unit]:
    """Pending units; stores the job in the output folder and rejects a different one there."""
    units = units_of(job, unit_rows)
    os.makedirs(job.output, exist_ok=True)
    mine = {"identity": _identity(job, unit_rows), "input": job.input, "model": job.model,
            "column": job.column, "units": len(units), "unit_rows": unit_rows}
    path = os.path.join(job.output, PLAN)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            theirs = json.load(file)
        if theirs != mine:
            raise InvalidError(
                f"{job.output} holds the parts of another job: {theirs['input']} through "
                f"{theirs['model']}", "give another output, or remove that folder")
    else:
        _write_whole(path, json.dumps(mine).encode())
    return [unit for unit in units if not os.path.exists(unit.part(job.output))]


def _identity(job: Job, unit_rows: int) -> str:
    files = [[path, os.path.getsize(path), pq.read_metadata(path).num_rows]
             for path in inputs_of(job.input)]
    encode = {name: value for name, value in job.encode.items() if value is not None}
    text = json.dumps([files, job.model, job.column, job.output_column, encode,
                       job.options.get("dtype"), unit_rows], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _write_whole(path: str, content: bytes) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


def read_unit(unit: Unit) -> pa.Table:
    """The rows of a unit; reads only row groups that overlap it."""
    file = pq.ParquetFile(unit.path)
    begin, tables = 0, []
    for group in range(file.num_row_groups):
        n = file.metadata.row_group(group).num_rows
        low, high = max(unit.first, begin), min(unit.first + unit.n_rows, begin + n)
        if low < high:
            tables.append(file.read_row_group(group).slice(low - begin, high - low))
        begin += n
    return pa.concat_tables(tables)


def texts_of(table: pa.Table, column: str, where: str = "") -> List[str]:
    """A column as texts; a null or a non-text value is an error, not an empty text."""
    values: List[Any] = table.column(column).to_pylist()
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise InvalidError(f'{where}row {i}: column "{column}" holds '
                               f"{'null' if value is None else type(value).__name__}, not text")
    return values


def with_vectors(table: pa.Table, vectors: Floats, name: str) -> pa.Table:
    """The table with the vectors as an added column, a fixed-size list of float32."""
    flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    if name in table.column_names:
        raise InvalidError(f'the input has a column "{name}" already', "name another output column")
    return table.append_column(name, column)


def embed_unit(job: Job, unit: Unit, model: Model) -> int:
    """Compute one unit and write its part; returns its row count."""
    part = unit.part(job.output)
    if not os.path.exists(part):
        table = read_unit(unit)
        texts = texts_of(table, job.column, f"{unit.path}, from row {unit.first}: ")
        made = with_vectors(table, model.encode(texts, **job.encode), job.output_column)
        temporary = f"{part}.{os.uname().nodename}.{os.getpid()}.tmp"
        pq.write_table(made, temporary)
        os.replace(temporary, part)
    return unit.n_rows


def parts_of(job: Job, unit_rows: int = UNIT_ROWS) -> Iterator[str]:
    """The parts in input order; all must exist."""
    for unit in units_of(job, unit_rows):
        part = unit.part(job.output)
        if not os.path.exists(part):
            raise NotFoundError(f"{part} is missing: the job is not finished", "run it again")
        yield part


def merge(job: Job, path: str, unit_rows: int = UNIT_ROWS) -> int:
    """Merge all parts into one file, in input order; returns its row count."""
    temporary = f"{path}.{os.getpid()}.tmp"
    writer: Optional[pq.ParquetWriter] = None
    n_rows = 0
    try:
        for part in parts_of(job, unit_rows):
            table = pq.read_table(part)
            writer = writer or pq.ParquetWriter(temporary, table.schema)
            writer.write_table(table)
            n_rows += table.num_rows
    finally:
        if writer:
            writer.close()
    if not writer:
        raise InvalidError(f"{job.input} has no rows")
    os.replace(temporary, path)
    return n_rows
