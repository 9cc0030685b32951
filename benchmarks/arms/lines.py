"""How an arm's process speaks with its benchmark: one JSON object a line. Keeps stdout free of libraries' chatter."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import IO, Any


class Lines:
    """Commands in, answers out."""

    def __init__(self) -> None:
        self._out: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def say(self, answer: Any) -> None:
        """One answer."""
        self._out.write(json.dumps(answer) + "\n")
        self._out.flush()

    def commands(self) -> Iterator[dict[str, Any]]:
        """Until the benchmark has gone."""
        for line in sys.stdin:
            yield json.loads(line)
