"""What the start has made is not looked at again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc
from registry import heap, models
before = len(gc.get_objects())
heap.freeze()
print(before, gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_collections_skip_what_there_was_before() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, check=True, capture_output=True, text=True)
    before, frozen, left = map(int, done.stdout.split())
    assert frozen > before / 2 > 1000
    assert left < before / 10
