"""Which jobs the threads of this process are busy with: from before the claim until the ending is written.

What the registry gives to this worker beyond these, nobody here knows of: a claim whose answer was lost with its
connection. `presence` hands it back.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class InHand:
    """Counts, because two messages of one job may be in two hands."""

    def __init__(self) -> None:
        self._counts: Counter[uuid.UUID] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def job(self, job_id: uuid.UUID) -> Iterator[None]:
        """This job is in hand for the length of the block."""
        with self._lock:
            self._counts[job_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._counts[job_id] -= 1
                if not self._counts[job_id]:
                    del self._counts[job_id]

    def ids(self) -> set[uuid.UUID]:
        """All jobs in hand now."""
        with self._lock:
            return set(self._counts)
