"""Every vLLM internal that Lorry touches, in one place, so that an upgrade fails at start and says what moved.

Paths are dotted attribute paths from the object named in the constant. Nothing here imports vLLM at import time.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

MANAGER = "model_runner.lora_manager"
POOL = f"{MANAGER}._adapter_manager"

WORKER_NAMES = (
    f"{MANAGER}._load_adapter",
    f"{POOL}.add_adapter",
    f"{POOL}._create_merged_loras_inplace",
    f"{POOL}.activate_adapter",
    f"{POOL}.deactivate_adapter",
    f"{POOL}.remove_adapter",
    f"{POOL}.capacity",
    f"{POOL}.lora_slots",
    f"{POOL}._active_adapters.cache",
    f"{POOL}._registered_adapters.cache",
    "model_runner.kv_caches",
)
"""From the worker object, in vLLM's worker process."""

LIVE_NAMES = ("model_runner.requests", "model_runner.lora_state.lora_requests")
"""From the worker object: the first exists in vLLM's V1 model runner, the second in V2; one of them is enough."""

HOST_NAMES = (
    "errored",
    "output_processor.propagate_error",
    "output_processor.request_states",
    "output_processor.get_num_queued_tokens",
    "vllm_config.cache_config.kv_cache_size_tokens",
    "vllm_config.scheduler_config.max_num_batched_tokens",
)
"""From the AsyncLLM object, in the host process."""

CPU_MODULE = "vllm.lora.punica_wrapper.punica_cpu"
CPU_NAMES = (
    "bgmv_shrink",
    "bgmv_expand",
    "bgmv_expand_slice",
    "PunicaWrapperCPU.update_metadata",
    "PunicaWrapperCPU.token_lora_indices",
    "PunicaWrapperCPU._shrink_prefill",
    "PunicaWrapperCPU._expand_prefill",
    "PunicaWrapperCPU._expand_slice_prefill",
)
"""From the module above, which exists in every build; patched on CPU only."""


def has(root: object, path: str) -> bool:
    """Whether a dotted attribute path leads somewhere."""
    for name in path.split("."):
        if not hasattr(root, name):
            return False
        root = getattr(root, name)
    return True


def absent(root: object, paths: Iterable[str]) -> list[str]:
    """The paths that lead nowhere."""
    return [path for path in paths if not has(root, path)]


def absent_in_worker(worker: object, *, on_cpu: bool) -> list[str]:
    """What this vLLM lacks of the names that the probe needs inside the worker."""
    lacking = absent(worker, WORKER_NAMES)
    if len(absent(worker, LIVE_NAMES)) == len(LIVE_NAMES):
        lacking.append(" or ".join(LIVE_NAMES))
    if on_cpu:
        lacking += [f"{CPU_MODULE}.{name}" for name in absent(import_module(CPU_MODULE), CPU_NAMES)]
    return lacking
