"""Timed loads of adapters inside vLLM's worker, and a count of those that vLLM made on its own inside a step.

Owns the order of a swap: free the slot, read, pack, activate; undo at once on failure. Chooses no victims: the planner
does. Only when it was told none does the least recently used host copy go that is in no slot; vLLM's own choice may be
an adapter in use.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from workers.probe.staged import Staged


class AdapterLoads:
    """Wraps vLLM's LoRA manager (`worker.model_runner.lora_manager`). Not thread-safe: vLLM runs RPCs between steps."""

    def __init__(self, manager: Any, synchronize: Callable[[], None]) -> None:
        self._manager = manager
        self._pool = manager._adapter_manager
        self._synchronize = synchronize
        self._swapping = False
        self._staged: dict[int, Staged] = {}
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

    def stage(self, name: str, int_id: int, path: str, drop: int | None) -> None:
        """Begin to read and pack an adapter on a thread, beside the steps. A host place is made for it first."""
        if int_id not in self._pool._registered_adapters and int_id not in self._staged:
            self._make_room(drop)
            self._staged[int_id] = Staged(lambda: self._read(name, int_id, path))

    def is_staged(self, int_id: int) -> bool:
        """Whether a swap would not have to wait for the thread."""
        staged = self._staged.get(int_id)
        return staged is None or staged.is_done

    def unstage(self, int_id: int) -> None:
        """Forget what was staged; a read under way ends unheard."""
        self._staged.pop(int_id, None)

    def swap(self, name: str, int_id: int, path: str, evict: int | None, drop: int | None = None) -> dict[str, Any]:
        """Bring one adapter into a slot. Never raises: an exception would lose its type on the way to the host.

        Returns the timing in milliseconds and the residency afterwards, or `error` with the residency. `evict` is out
        of its slot either way and keeps its host copy.
        """
        begun = time.monotonic()
        evicted = [evict] if evict is not None and self._pool.deactivate_adapter(evict) else []
        self._swapping = True
        try:
            result = self._bring(name, int_id, path, drop)
        except Exception as error:  # noqa: BLE001 - whatever a tenant's file provokes must not reach vLLM's step loop
            # vLLM leaves a half-activated adapter behind, and a second try would "succeed" with garbage weights.
            self.forget(int_id)
            result = {"error": f"{type(error).__name__}: {error}"}
        finally:
            self._swapping = False
        return {**result, **self.residency(), "evicted": evicted, "begun_at_s": begun, "ended_at_s": time.monotonic()}

    def _bring(self, name: str, int_id: int, path: str, drop: int | None) -> dict[str, Any]:
        if int_id in self._pool._active_adapters:
            return {"state": "hot", "load_ms": 0.0, "activate_ms": 0.0}
        if len(self._pool._active_adapters) >= self._pool.lora_slots:
            return {"full": True}
        state, load_ms = "warm", 0.0
        if int_id not in self._pool._registered_adapters:
            state, load_ms = "cold", self._load(name, int_id, path, drop)
        self._synchronize()
        started = time.perf_counter()
        self._pool.activate_adapter(int_id)
        self._synchronize()
        return {"state": state, "load_ms": load_ms, "activate_ms": (time.perf_counter() - started) * 1000}

    def _load(self, name: str, int_id: int, path: str, drop: int | None) -> float:
        """Into host memory; what that took in ms, on the thread if the adapter was staged."""
        staged = self._staged.pop(int_id, None)
        if staged is None:
            staged = Staged(lambda: self._read(name, int_id, path))
        adapter, load_ms = staged.result()
        self._make_room(drop)
        self._pool._registered_adapters[int_id] = adapter
        return load_ms

    def _read(self, name: str, int_id: int, path: str) -> Any:
        """Read and pack, touching nothing that a step uses."""
        from vllm.lora.request import LoRARequest

        adapter = self._manager._load_adapter(LoRARequest(name, int_id, path))
        self._pool._create_merged_loras_inplace(adapter)
        return adapter

    def _make_room(self, drop: int | None) -> None:
        registered, active = self._pool._registered_adapters, self._pool._active_adapters
        while len(registered) + len(self._staged) >= self._pool.capacity:
            idle = [int_id for int_id in registered.cache if int_id not in active]
            if not idle:
                return
            self._pool.remove_adapter(drop if drop in idle else idle[0])

    def forget(self, int_id: int) -> None:
        """Drop an adapter from its slot and from host memory, in whatever half state it is."""
        self._staged.pop(int_id, None)
        self._pool.deactivate_adapter(int_id)
        self._pool.remove_adapter(int_id)
