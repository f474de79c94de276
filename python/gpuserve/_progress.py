"""A progress bar on standard error: tqdm if installed, else a line of text."""

from __future__ import annotations

import sys
import time
from typing import Any


class Progress:
    """Counts texts, or bytes; does nothing if disabled."""

    def __init__(self, total: int, is_on: bool, unit: str = "texts", name: str = "") -> None:
        self._total = total
        self._unit = unit
        self._name = name and name + ": "
        self._done = 0
        self._is_on = is_on
        self._bar: Any = None
        self._began = self._shown = time.monotonic()
        if is_on:
            try:
                from tqdm.auto import tqdm

                if unit == "bytes":
                    self._bar = tqdm(total=total, unit="B", unit_scale=True, desc=name)
                else:
                    self._bar = tqdm(total=total, unit=unit)
            except ImportError:
                pass

    def advance(self, n: int) -> None:
        """Add to the number of finished texts."""
        self._done += n
        if self._bar is not None:
            self._bar.update(n)
        elif self._is_on and time.monotonic() - self._shown > 0.2:
            self._shown = time.monotonic()
            rate = self._done / (self._shown - self._began)
            print(f"\r{self._amount()}, {self._scaled(rate):.0f} a second", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line."""
        if self._bar is not None:
            self._bar.close()
        elif self._is_on and self._shown != self._began:
            print(f"\r{self._amount()}", file=sys.stderr)

    def _scaled(self, amount: float) -> float:
        return amount / 1e6 if self._unit == "bytes" else amount

    def _amount(self) -> str:
        unit = "MB" if self._unit == "bytes" else self._unit
        return f"{self._name}{self._scaled(self._done):.0f}/{self._scaled(self._total):.0f} {unit}"
