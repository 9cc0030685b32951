"""The class that vLLM mixes into its worker (`worker_extension_cls`): the RPC surface of the probe.

Every method is called through `collective_rpc` and answers with plain values. Names start with `lorry_`, because vLLM
refuses an extension that shadows a worker's attribute. Nothing here decides anything.
"""

from __future__ import annotations

import os
from typing import Any

from workers.probe import watch
from workers.probe.loads import AdapterLoads
from workers.probe.private_names import absent_in_worker


class ProbeExtension:
    """`self` is vLLM's worker."""

    model_runner: Any
    device: Any
    lorry_loads: AdapterLoads

    def lorry_install(self, host_pid: int) -> dict[str, Any]:
        """Install everything; returns this process's id and the vLLM names that are missing (then nothing is done)."""
        on_cpu = self.device.type == "cpu"
        watch.die_with(host_pid)
        lacking = absent_in_worker(self, on_cpu=on_cpu)
        if not lacking:
            if on_cpu:
                from workers.probe import cpu_ops

                cpu_ops.patch()
            self.lorry_loads = AdapterLoads(self.model_runner.lora_manager, self._lorry_synchronize)
        return {"pid": os.getpid(), "parent_pid": os.getppid(), "absent": lacking}

    def _lorry_synchronize(self) -> None:
        """Copies to a GPU are asynchronous: without this a load would be timed as its launch."""
        if self.device.type == "cuda":
            import torch

            torch.cuda.synchronize(self.device)

    def lorry_stage(self, name: str, int_id: int, path: str, drop: int | None) -> dict[str, Any]:
        """See `AdapterLoads.stage`; returns the residency."""
        self.lorry_loads.stage(name, int_id, path, drop)
        return self.lorry_loads.residency()

    def lorry_is_staged(self, int_id: int) -> bool:
        """See `AdapterLoads.is_staged`."""
        return self.lorry_loads.is_staged(int_id)

    def lorry_unstage(self, int_id: int) -> None:
        """See `AdapterLoads.unstage`."""
        self.lorry_loads.unstage(int_id)

    def lorry_swap(self, name: str, int_id: int, path: str, evict: int | None, drop: int | None) -> dict[str, Any]:
        """See `AdapterLoads.swap`."""
        return self.lorry_loads.swap(name, int_id, path, evict, drop)

    def lorry_forget(self, int_id: int) -> dict[str, Any]:
        """Drop an adapter everywhere; returns the residency."""
        self.lorry_loads.forget(int_id)
        return self.lorry_loads.residency()

    def lorry_residency(self) -> dict[str, Any]:
        """See `AdapterLoads.residency`."""
        return self.lorry_loads.residency()

    def lorry_live_adapters(self) -> list[int]:
        """Ids of the adapters of the requests that the model runner still knows; aborted ones stay one more step."""
        if hasattr(self.model_runner, "requests"):
            requests = [state.lora_request for state in self.model_runner.requests.values()]
        else:
            requests = list(self.model_runner.lora_state.lora_requests.values())
        return sorted({request.lora_int_id for request in requests if request is not None})

    def lorry_scrub(self) -> int:
        """Zero the KV cache: vLLM recycles blocks without zeroing, and a NaN in one spreads. Returns tensors zeroed."""
        zeroed = 0
        for entry in self.model_runner.kv_caches:
            for tensor in entry if isinstance(entry, list | tuple) else (entry,):
                tensor.zero_()
                zeroed += 1
        return zeroed
