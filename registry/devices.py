"""What this machine computes on, as far as it can be told without loading a model library."""

from __future__ import annotations

from pathlib import Path
from typing import Final

NVIDIA: Final = Path("/dev/nvidiactl")
SEQS_ON_CPU: Final = 64
SEQS_ON_GPU: Final = 256
"""vLLM's own number for devices below 70 GiB (`EngineArgs.get_batch_defaults`), and the most that a worker holds."""


def on_gpu() -> bool:
    """Whether there is an NVIDIA device."""
    return NVIDIA.exists()


def usual_max_num_seqs() -> int:
    """Jobs in a running batch, unless the operator says otherwise."""
    return SEQS_ON_GPU if on_gpu() else SEQS_ON_CPU
