"""The program ``gpuserve`` that the wheel brings, and the command of that name."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Dict, Optional

VARIABLE = "GPUSERVE_PROGRAM"
FETCH = "GPUSERVE_FETCH"
_FOLDER = Path(__file__).parent


def path() -> Optional[str]:
    """The program named by GPUSERVE_PROGRAM, in the wheel, or of the system; None without one."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    own = _FOLDER / "_native" / "gpuserve"
    return str(own) if own.exists() else shutil.which("gpuserve")


def environment() -> Dict[str, str]:
    """Ours; ``pull`` makes its requests through Python."""
    fetch = "\n".join((sys.executable, "-I", str(_FOLDER / "_fetch.py")))
    return {FETCH: fetch, **os.environ} if sys.executable else dict(os.environ)


def main() -> None:
    """Become the program of the wheel."""
    own = _FOLDER / "_native" / "gpuserve"
    if not own.exists():
        sys.exit(f"gpuserve: {own} is missing: install the gpuserve wheel")
    os.execve(own, ["gpuserve", *sys.argv[1:]], environment())
