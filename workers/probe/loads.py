"""Timed loads of adapters inside vLLM's worker, and a count of those that vLLM made on its own inside a step.

Owns the order of a swap: free the slot, read, pack, activate; undo at once on failure. Chooses no victims for slots
(the planner does); it chooses the host-memory victim, because vLLM's own choice may be an adapter that is in a slot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class AdapterLoads:
    """Wraps vLLM's LoRA manager (`worker.model_runner.lora_manager`). Not thread-safe: vLLM runs RPCs between steps."""

    def __init__(self, manager: Any, synchronize: Callable[[], None]) -> None:
        self._manager = manager
        self._pool = manager._adapter_manager
        self._synchronize = synchronize
        self._swapping = False
        self.step_time_loads = 0
        self._activate = self._pool.activate_adapter
        self._pool.activate_adapter = self._counting_activate

    def _counting_activate(self, int_id: int) -> Any:
        """Stands in for vLLM's method, which also runs at every step for every adapter in use."""
        if not self._swapping and int_id not in self._pool._active_adapters:
            self.step_time_loads += 1
        return self._activate(int_id)

    def residency(self) -> dict[str, Any]:
        """Ids in slots and in host memory, least recently used first, and the loads inside steps so far."""
        return {
            "slots": list(self._pool._active_adapters.cache),
            "host": list(self._pool._registered_adapters.cache),
            "step_time_loads": self.step_time_loads,
        }

    def swap(self, name: str, int_id: int, path: str, evict: int | None) -> dict[str, Any]:
        """Bring one adapter into a slot. Never raises: an exception would lose its type on the way to the host.

        Returns the timing in milliseconds and the residency afterwards, or `error` with the residency. `evict` is out
        of its slot either way and keeps its host copy.
        """
        begun = time.monotonic()
        evicted = [evict] if evict is not None and self._pool.deactivate_adapter(evict) else []
        self._swapping = True
        try:
            result = self._bring(name, int_id, path)
        except Exception as error:  # noqa: BLE001 - whatever a tenant's file provokes must not reach vLLM's step loop
            # vLLM leaves a half-activated adapter behind, and a second try would "succeed" with garbage weights.
            self.forget(int_id)
            result = {"error": f"{type(error).__name__}: {error}"}
        finally:
            self._swapping = False
        return {**result, **self.residency(), "evicted": evicted, "begun_at_s": begun, "ended_at_s": time.monotonic()}

    def _bring(self, name: str, int_id: int, path: str) -> dict[str, Any]:
        if int_id in self._pool._active_adapters:
            return {"state": "hot", "load_ms": 0.0, "activate_ms": 0.0}
        if len(self._pool._active_adapters) >= self._pool.lora_slots:
            return {"full": True}
        state, load_ms = "warm", 0.0
        if int_id not in self._pool._registered_adapters:
            state, load_ms = "cold", self._load(name, int_id, path)
        self._synchronize()
        started = time.perf_counter()
        self._pool.activate_adapter(int_id)
        self._synchronize()
        return {"state": state, "load_ms": load_ms, "activate_ms": (time.perf_counter() - started) * 1000}

    def _load(self, name: str, int_id: int, path: str) -> float:
        from vllm.lora.request import LoRARequest

        started = time.perf_counter()
        adapter = self._manager._load_adapter(LoRARequest(name, int_id, path))
        self._make_room()
        self._pool.add_adapter(adapter)
        return (time.perf_counter() - started) * 1000

    def _make_room(self) -> None:
        """vLLM would drop the oldest registered adapter, in a slot or not; drop the oldest that is in none."""
        registered, active = self._pool._registered_adapters, self._pool._active_adapters
        while len(registered) >= self._pool.capacity:
            self._pool.remove_adapter(next(int_id for int_id in registered.cache if int_id not in active))

    def forget(self, int_id: int) -> None:
        """Drop an adapter from its slot and from host memory, in whatever half state it is."""
        self._pool.deactivate_adapter(int_id)
        self._pool.remove_adapter(int_id)
