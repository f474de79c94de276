"""Models of the Hugging Face hub: fetched at first use by the program's command ``pull``."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from typing import IO, List, Optional

from . import _program
from ._ffi.arguments import Path
from ._progress import Progress
from .errors import DownloadError, LibraryError, NotFoundError

_NAME = re.compile(r"([A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*)(?:@([\w.+/-]+))?")
_YES = ("1", "on", "yes", "true")


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in _YES


def _offline() -> Optional[str]:
    """The variable that forbids the network."""
    return next((name for name in ("HF_HUB_OFFLINE", "GPUSERVE_OFFLINE") if _is_set(name)), None)


def _watch(lines: IO[bytes], name: str) -> List[str]:
    """Draw the progress; the other lines."""
    bar: Optional[Progress] = None
    shown = not _is_set("HF_HUB_DISABLE_PROGRESS_BARS")
    done = 0
    others: List[str] = []
    try:
        for line in lines:
            text = line.decode("utf-8", "replace").rstrip("\n")
            numbers = text.split()[1:] if text.startswith("progress: ") else []
            if len(numbers) != 2:
                others.append(text)
                continue
            bar = bar or Progress(int(numbers[1]), shown, "bytes", name)
            bar.advance(int(numbers[0]) - done)
            done = int(numbers[0])
    finally:
        if bar is not None:
            bar.close()
    return others


def pull(name: str, revision: Optional[str] = None, *, cache_dir: Optional[Path] = None) -> str:
    """Download a model of the Hugging Face hub into its cache, and return its folder there.

    What is there already is not fetched again; an interrupted download is continued. ``HF_TOKEN``, ``HF_ENDPOINT``,
    ``HF_HOME``, ``HF_HUB_CACHE`` and ``HF_HUB_OFFLINE`` (or ``GPUSERVE_OFFLINE``) mean what they mean elsewhere;
    ``HF_HUB_DISABLE_PROGRESS_BARS`` hides the progress bar.

    Raises:
        DownloadError: the network, the hub or the disk; the message says which.
        NotFoundError: it is not in the cache, and the network is forbidden.
    """
    program = _program.path()
    if program is None:
        raise LibraryError("the program gpuserve is missing",
                           f"install the gpuserve wheel, or name the program in {_program.VARIABLE}")
    command = [program, "pull", *(["--revision", revision] if revision else []),
               *(["--cache-dir", os.fspath(cache_dir)] if cache_dir else []), "--", name]
    environment = {**_program.environment(), "GPUSERVE_PROGRESS": "lines"}
    with tempfile.TemporaryFile() as output:  # a pipe could fill up while the other one is read
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, env=environment) as process:
            assert process.stderr is not None
            try:
                others = _watch(process.stderr, name)
            except BaseException:
                process.terminate()
                raise
        output.seek(0)
        folder = output.read().decode("utf-8", "surrogateescape").rstrip("\n")
    if process.returncode == 0:
        return folder
    hints = [line.strip()[len("hint: "):] for line in others if line.strip().startswith("hint: ")]
    messages = [line[len("gpuserve: "):] if line.startswith("gpuserve: ") else line
                for line in others if not line.strip().startswith("hint: ")]
    kind = NotFoundError if _offline() else DownloadError
    raise kind("; ".join(messages) or f"{name}: gpuserve pull ended with status {process.returncode}", "; ".join(hints))


def fetched(path: Path, cache_dir: Optional[Path]) -> bool:
    """Fetch the model that a name means; False for what is no name of the hub, and without the program."""
    match = _NAME.fullmatch(path) if isinstance(path, str) else None
    if match is None or os.path.exists(path) or _program.path() is None:
        return False
    pull(match[1], match[2], cache_dir=cache_dir)
    return True
