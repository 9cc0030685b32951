"""Base models, the other names they are known by, and the deployments that serve them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from registry.models.base import Base, Created

RANK_CEILINGS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM 0.32 accepts as `max_lora_rank`."""


class BaseModel(Base):
    """A model the operator registered. `template` is a list of chat messages with `{document}` in one of them."""

    __tablename__ = "base_models"

    name: Mapped[str] = mapped_column(primary_key=True)
    path: Mapped[str]
    revision: Mapped[str | None]
    template: Mapped[list[Any]]
    created_at: Mapped[Created]


class BaseAlias(Base):
    """A name under which adapters of this base were trained: a hub id, a path, a quantized twin."""

    __tablename__ = "base_aliases"

    alias: Mapped[str] = mapped_column(primary_key=True)
    base_model: Mapped[str] = mapped_column(ForeignKey("base_models.name", ondelete="CASCADE"))


class Deployment(Base):
    """A base served with one set of engine settings. Its queue is `infer.<name>`. No number of adapters is `auto`."""

    __tablename__ = "deployments"
    __table_args__ = (
        CheckConstraint(f"max_lora_rank IN ({', '.join(map(str, RANK_CEILINGS))})", name="rank_ceiling"),
        CheckConstraint("max_loras >= 1 AND max_cpu_loras >= max_loras", name="slots"),
        CheckConstraint("max_num_seqs >= 1 AND max_model_len >= 16", name="engine_sizes"),
        CheckConstraint("gpu_memory_utilization > 0 AND gpu_memory_utilization <= 1", name="memory_share"),
        CheckConstraint("tensor_parallel_size >= 1", name="tensor_parallel"),
        Index("uq_deployments_default", "base_model", unique=True, postgresql_where=text("is_default")),
    )

    name: Mapped[str] = mapped_column(primary_key=True)
    base_model: Mapped[str] = mapped_column(ForeignKey("base_models.name"))
    is_default: Mapped[bool] = mapped_column(server_default=text("false"))
    device: Mapped[str] = mapped_column(server_default="0")
    dtype: Mapped[str] = mapped_column(server_default="bfloat16")
    max_model_len: Mapped[int]
    max_num_seqs: Mapped[int]
    max_loras: Mapped[int | None]
    max_lora_rank: Mapped[int]
    max_cpu_loras: Mapped[int | None]
    tensor_parallel_size: Mapped[int] = mapped_column(server_default="1")
    gpu_memory_utilization: Mapped[float] = mapped_column(server_default="0.9")
    created_at: Mapped[Created]
    paused_at: Mapped[datetime | None]
