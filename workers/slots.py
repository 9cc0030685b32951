"""Which adapter is in which slot and how many live jobs pin it: pure bookkeeping that audits itself.

Slots follow the engine, never lead it: a swap is entered when it has happened. Who leaves is `policy`'s choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from workers.policy import BASE, SlotView


class SlotsBroken(AssertionError):
    """The bookkeeping contradicts itself: a defect, to be seen at once rather than served around."""


@dataclass(slots=True)
class _Slot:
    used_s: float
    served_from_s: float | None = None
    live: int = 0


class Slots:
    """`max_loras` places. All times are seconds of one monotonic clock, given by the caller."""

    def __init__(self, max_loras: int) -> None:
        self.max_loras = max_loras
        self._slots: dict[int, _Slot] = {}
        self._base_live = 0
        self._leaving: int | None = None

    @property
    def live(self) -> int:
        """Jobs inside the engine, those of the bare base included."""
        return self._base_live + sum(slot.live for slot in self._slots.values())

    @property
    def live_adapters(self) -> int:
        """Distinct adapters with live jobs."""
        return sum(slot.live > 0 for slot in list(self._slots.values()))  # other threads ask too

    @property
    def resident(self) -> frozenset[int]:
        """Adapters in slots."""
        return frozenset(self._slots)

    def views(
        self, now_s: float, next_turns: Mapping[int, int], backlog: Mapping[int, int] | None = None
    ) -> list[SlotView]:
        """What `policy.decide` sees. `next_turns`: the oldest held turn of each adapter that has one; `backlog`: the
        places of those that the backlog needs."""
        return [
            SlotView(
                adapter=adapter,
                live=slot.live,
                served_s=0.0 if slot.served_from_s is None else now_s - slot.served_from_s,
                unused_s=now_s - slot.used_s,
                next_turn=next_turns.get(adapter),
                backlog_place=(backlog or {}).get(adapter),
                fresh=slot.served_from_s is None,
                leaving=adapter == self._leaving,
            )
            for adapter, slot in self._slots.items()
        ]

    def entered(self, adapter: int, now_s: float) -> None:
        """The engine has brought an adapter into a slot."""
        self._slots[adapter] = _Slot(used_s=now_s)
        self.check()

    def left(self, adapter: int) -> None:
        """The engine has freed an adapter's slot. Raises SlotsBroken while live jobs pin it."""
        slot = self._slots.pop(adapter, None)
        if slot is not None and slot.live:
            raise SlotsBroken(f"adapter {adapter} lost its slot with {slot.live} live jobs")

    def admit(self, adapter: int, now_s: float) -> None:
        """A job entered the engine."""
        if adapter == BASE:
            self._base_live += 1
            return
        if adapter not in self._slots or adapter == self._leaving:
            raise SlotsBroken(f"a job was admitted for adapter {adapter}, which is in no slot or leaves its own")
        slot = self._slots[adapter]
        slot.live += 1
        slot.used_s = now_s
        if slot.served_from_s is None:
            slot.served_from_s = now_s

    def release(self, adapter: int, now_s: float) -> None:
        """A job left the engine."""
        if adapter == BASE:
            self._base_live -= 1
        else:
            self._slots[adapter].live -= 1
            self._slots[adapter].used_s = now_s
        self.check()

    def leaves(self, adapter: int | None) -> None:
        """A swap is about to take this adapter's slot; None when it is over, whatever came of it."""
        self._leaving = adapter

    def differs(self, found: Iterable[int]) -> frozenset[int]:
        """Adapters that are in the engine's slots and not in this book, or the other way round. Must be empty."""
        return self.resident ^ frozenset(found)

    def adopt(self, found: Iterable[int], now_s: float) -> None:
        """Take over what the engine says is in its slots. Raises SlotsBroken for a job whose adapter is in none."""
        for adapter in self.differs(found):
            if adapter in self._slots:
                self.left(adapter)
            else:
                self.entered(adapter, now_s)

    def clear(self) -> None:
        """The engine is new: nothing is in a slot, nothing is live."""
        self._slots.clear()
        self._base_live = 0
        self._leaving = None

    def check(self) -> None:
        """Raise SlotsBroken when the books cannot be right."""
        if len(self._slots) > self.max_loras:
            raise SlotsBroken(f"{len(self._slots)} adapters in {self.max_loras} slots")
        if self._base_live < 0 or any(slot.live < 0 for slot in self._slots.values()):
            raise SlotsBroken("more jobs left the engine than entered it")
