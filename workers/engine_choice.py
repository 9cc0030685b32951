"""Which engine a worker hosts, and its settings for a deployment."""

from __future__ import annotations

from registry import devices
from registry.models import BaseModel, Deployment
from registry.settings import Settings
from workers.autosize import Places
from workers.engine_fake import FakeEngine
from workers.generation import Engine, EngineConfig

_GIB = 1024**3


def engine_config(settings: Settings, deployment: Deployment, base: BaseModel, places: Places) -> EngineConfig:
    """A deployment's row as engine settings. On a GPU vLLM sizes the KV cache itself."""
    return EngineConfig(
        model_path=base.path,
        revision=base.revision,
        dtype=deployment.dtype,
        max_model_len=deployment.max_model_len,
        max_num_seqs=deployment.max_num_seqs,
        max_loras=places.max_loras,
        max_lora_rank=deployment.max_lora_rank,
        max_cpu_loras=places.max_cpu_loras,
        tensor_parallel_size=deployment.tensor_parallel_size,
        gpu_memory_utilization=deployment.gpu_memory_utilization,
        kv_cache_bytes=None if devices.on_gpu() else int(settings.kv_cache_gib * _GIB),
    )


def make_engine(settings: Settings, deployment: Deployment, base: BaseModel, places: Places) -> Engine:
    """The engine that the settings name. vLLM is imported only when it is the one."""
    config = engine_config(settings, deployment, base, places)
    if settings.engine == "fake":
        return FakeEngine(config, step_ms=settings.fake_step_ms)
    from workers.engine import VllmEngine

    return VllmEngine(config)
