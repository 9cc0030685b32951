"""What swaps happened lately: whose slot was taken, and how long other adapters' loads stopped a job."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from workers.generation import AdapterRef, Swap

_KEPT = 512


@dataclass(frozen=True, slots=True)
class _Past:
    adapter: int
    begun_at_s: float
    ended_at_s: float


class SwapHistory:
    """The last swaps of one engine. A swap stops every request in it: that time belongs to their timing too."""

    def __init__(self) -> None:
        self._past: deque[_Past] = deque(maxlen=_KEPT)
        self._names: dict[int, str] = {}

    def note(self, ref: AdapterRef, swap: Swap, evict: int | None) -> str | None:
        """Remember a swap; the evicted adapter's `tenant/name@version`, if one was evicted."""
        self._past.append(_Past(ref.int_id, swap.begun_at_s, swap.ended_at_s))
        self._names[ref.int_id] = ref.name.partition("#")[0]
        return None if evict is None else self._names.pop(evict, None)

    def note_failure(self, ref: AdapterRef, begun_at_s: float, ended_at_s: float) -> None:
        """Remember a load that failed: it may have stopped the others all the same."""
        self._past.append(_Past(ref.int_id, begun_at_s, ended_at_s))

    def stalled_ms(self, adapter: int, from_s: float, to_s: float) -> float:
        """How long swaps of other adapters overlapped with this span."""
        overlaps = (
            min(past.ended_at_s, to_s) - max(past.begun_at_s, from_s) for past in self._past if past.adapter != adapter
        )
        return sum(max(0.0, overlap) for overlap in overlaps) * 1000
