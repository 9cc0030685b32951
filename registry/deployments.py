"""Deployments: a base served with one set of engine settings, on one device, behind the queue `infer.<name>`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from registry import base_models, devices
from registry.errors import ConfigurationError, Conflict, InvalidField, NotFound
from registry.ids import check_base_name
from registry.models import Deployment
from registry.models.bases import RANK_CEILINGS

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an operator may set for a deployment; the defaults suit a small model on one device."""

    dtype: str = "bfloat16"
    max_model_len: int = 2048
    max_num_seqs: int = field(default_factory=devices.usual_max_num_seqs)
    max_loras: int | None = 8
    """None: `auto`, as many as fit when the worker starts."""
    max_lora_rank: int = 16
    max_cpu_loras: int | None = 64
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.9
    device: str = "0"

    def check(self) -> None:
        """Raise InvalidField for what vLLM would refuse, or accept and serve badly."""
        if self.dtype not in ("bfloat16", "float16", "float32"):
            raise InvalidField("dtype is bfloat16, float16 or float32.", param="dtype")
        if self.max_lora_rank not in RANK_CEILINGS:
            raise InvalidField(f"max_lora_rank is one of {', '.join(map(str, RANK_CEILINGS))}.", param="max_lora_rank")
        slots = 1 if self.max_loras is None else self.max_loras
        if slots < 1 or (self.max_cpu_loras is not None and self.max_cpu_loras < slots):
            raise InvalidField("max_loras is at least 1 and max_cpu_loras at least max_loras.", param="max_loras")
        if self.max_num_seqs < 1 or self.max_model_len < 16:
            raise InvalidField("max_num_seqs is at least 1 and max_model_len at least 16.", param="max_num_seqs")
        if not 0 < self.gpu_memory_utilization <= 1:
            raise InvalidField("gpu_memory_utilization is above 0 and at most 1.", param="gpu_memory_utilization")
        if self.tensor_parallel_size < 1:
            raise InvalidField("tensor_parallel_size is at least 1.", param="tensor_parallel_size")


def add(
    session: Session, name: str, base: str, settings: EngineSettings, *, is_default: bool, kv_cache_gib: float
) -> Deployment:
    """Register a deployment. Raises Conflict for a taken name, ConfigurationError when its device is too small."""
    check_base_name(name)
    settings.check()
    model = base_models.get(session, base)
    _check_fit(session, name, model.path, settings, kv_cache_gib)
    columns = {field: getattr(settings, field) for field in settings.__slots__}
    made = session.execute(
        insert(Deployment)
        .values(name=name, base_model=model.name, is_default=is_default, **columns)
        .on_conflict_do_nothing()
        .returning(Deployment)
    ).scalar_one_or_none()
    if made is None:
        raise Conflict(f"Deployment {name!r} exists already, or {model.name!r} has a default one.", param="name")
    return made


def get(session: Session, name: str) -> Deployment:
    """The deployment, or NotFound."""
    found = session.get(Deployment, name)
    if found is None:
        raise NotFound(f"No deployment {name!r}; `lorry bases list` shows them.", param="deployment")
    return found


def names(session: Session) -> Sequence[str]:
    """Every deployment's name, in order."""
    return session.scalars(select(Deployment.name).order_by(Deployment.name)).all()


def serving(session: Session, base: str, rank: int = 1) -> Deployment:
    """Where a job of this base and adapter rank runs: the base's own deployment, else the next higher rank class."""
    found = session.scalars(
        select(Deployment)
        .where(Deployment.base_model == base, Deployment.max_lora_rank >= rank)
        .order_by(Deployment.is_default.desc(), Deployment.max_lora_rank)
        .limit(1)
    ).one_or_none()
    if found is None:
        raise ConfigurationError(f"No deployment of {base!r} takes rank {rank}; add one with a higher max_lora_rank.")
    return found


def rank_ceiling(session: Session, base: str) -> int:
    """The highest rank that some deployment of this base takes."""
    ceiling = session.scalar(
        select(Deployment.max_lora_rank)
        .where(Deployment.base_model == base)
        .order_by(Deployment.max_lora_rank.desc())
        .limit(1)
    )
    if ceiling is None:
        raise NotFound(f"Base model {base!r} has no deployment.", param="base_model")
    return ceiling


def _check_fit(session: Session, name: str, path: str, settings: EngineSettings, kv_cache_gib: float) -> None:
    """Deployments on one device share its memory, without a GPU all of them: refuse what does not fit, with the sum."""
    others = session.scalars(select(Deployment).order_by(Deployment.name)).all()
    if devices.on_gpu():
        others = [d for d in others if d.device == settings.device]
        shares = {d.name: d.gpu_memory_utilization for d in others} | {name: settings.gpu_memory_utilization}
        _refuse_above(shares, 1.0, f"device {settings.device}", "gpu_memory_utilization or choose another device", "")
        return
    needs = {d.name: _cpu_gib(base_models.get(session, d.base_model).path, kv_cache_gib) for d in others}
    needs[name] = _cpu_gib(path, kv_cache_gib)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    _refuse_above(needs, memory, "this machine's memory", "LORRY_KV_CACHE_GIB", " GiB")


def _cpu_gib(path: str, kv_cache_gib: float) -> float:
    return sum(f.stat().st_size for f in Path(path).glob("*.safetensors")) / _GIB + kv_cache_gib


def _refuse_above(needs: dict[str, float], limit: float, where: str, knob: str, unit: str) -> None:
    total = sum(needs.values())
    if total > limit + 1e-9:
        terms = " + ".join(f"{need:.2f} ({name})" for name, need in needs.items())
        raise ConfigurationError(
            f"The deployments do not fit {where}: {terms} = {total:.2f}{unit}, more than {limit:.2f}{unit}. "
            f"Lower {knob}."
        )
