"""`auto` resolved: how many adapters this worker's engine keeps in slots and in host memory, with the arithmetic.

The device is asked in a process of its own: whoever touches a GPU before the engine starts changes how it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from registry import devices, model_shape, sizing
from registry.errors import ConfigurationError
from registry.logs import get_logger
from registry.models import Adapter, BaseModel, Deployment
from registry.settings import Settings
from registry.sizing import GIB, Wish

ASK_S = 120
_ASK = "import torch; print(torch.cuda.get_device_properties(0).total_memory)"
_CPU_SHARE = 0.5
"""Of a machine without a GPU, for the model, its KV cache and slots: databases and other workers live there too."""

_log = get_logger("sizing")


@dataclass(frozen=True, slots=True)
class Places:
    """Adapters in slots and in host memory; `sums`: how they came about, None for numbers that the operator gave."""

    max_loras: int
    max_cpu_loras: int
    sums: dict[str, Any] | None = None


def places(session: Session, settings: Settings, deployment: Deployment, base: BaseModel) -> Places:
    """The operator's numbers, or what fits. Raises ConfigurationError when not even one slot does."""
    if deployment.max_loras is not None and deployment.max_cpu_loras is not None:
        return Places(deployment.max_loras, deployment.max_cpu_loras)
    model = model_shape.read(Path(base.path), deployment.dtype)
    adapters = session.scalar(select(func.count()).where(Adapter.base_model == base.name, Adapter.is_active)) or 0
    found = sizing.size(model, _wish(settings, deployment, adapters))
    slots = deployment.max_loras or found.slots
    for line in found.lines():
        _log.info("slots are sized", deployment=deployment.name, sum=line)
    if slots < 1:
        raise ConfigurationError(
            f"Deployment {deployment.name!r} has no room for an adapter slot: {found.lines()[0]}. Lower max_model_len, "
            f"max_num_seqs or max_lora_rank."
        )
    copies = sizing.host_copies(model, deployment.max_lora_rank, slots, host_bytes(), adapters)
    copies = deployment.max_cpu_loras or copies
    slots = min(slots, copies)
    sums = {"max_loras": slots, "max_cpu_loras": copies, "never_swaps": found.never_swaps, "arithmetic": found.lines()}
    return Places(slots, copies, sums)


def _wish(settings: Settings, deployment: Deployment, adapters: int) -> Wish:
    on_gpu = devices.on_gpu()
    return Wish(
        device_bytes(settings),
        deployment.gpu_memory_utilization if on_gpu else _CPU_SHARE,
        deployment.max_num_seqs,
        deployment.max_model_len,
        deployment.max_lora_rank,
        adapters,
        kv_bytes=None if on_gpu else int(settings.kv_cache_gib * GIB),
    )


def device_bytes(settings: Settings) -> int:
    """Memory of this worker's device: as set, else as it says. Raises ConfigurationError when it does not say."""
    if settings.device_memory_gib is not None:
        return int(settings.device_memory_gib * GIB)
    if not devices.on_gpu():
        return host_bytes()
    try:
        asked = subprocess.run([sys.executable, "-c", _ASK], check=True, capture_output=True, timeout=ASK_S)
        return int(asked.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        raise ConfigurationError(
            "The device does not say how much memory it has: set LORRY_DEVICE_MEMORY_GIB."
        ) from None


def host_bytes() -> int:
    """This machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
