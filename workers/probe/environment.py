"""What vLLM reads from the environment."""

from __future__ import annotations

import os


def set_environment() -> None:
    """vLLM reads these when it is imported or started; its child processes inherit them."""
    os.environ |= {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork of this threaded process risks copied locks
        "VLLM_COMPUTE_NANS_IN_LOGITS": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",  # a wrong local path must not turn into a download
    }
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # no third process; starts in half the time
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads collapse when the cores are busy elsewhere
        os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)  # it would override `kv_cache_bytes`
