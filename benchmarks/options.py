"""The command line that all benchmarks share."""

from __future__ import annotations

import argparse
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

PAIRS, QUICK_PAIRS = 7, 2


@dataclass(frozen=True, slots=True)
class Options:
    """`quick` shows that a program works; its figures are too few to be quoted."""

    json: Path
    quick: bool

    @property
    def pairs(self) -> int:
        """How many times each arm runs."""
        return QUICK_PAIRS if self.quick else PAIRS


def parse(name: str, argv: list[str] | None = None) -> Options:
    """`--json FILE [--quick]`. From here on SIGTERM unwinds, so that no process of a benchmark is left behind."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--json", type=Path, required=True, help="where to write the result")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that everything works")
    given = parser.parse_args(argv)
    return Options(given.json, given.quick)
