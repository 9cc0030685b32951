"""What fair order remembers: how much each tenant was served, and how long each adapter's jobs are."""

from __future__ import annotations

from sqlalchemy import ForeignKey, text
from sqlalchemy.orm import Mapped, mapped_column

from registry.models.base import Base


class ServiceCounter(Base):
    """A tenant's virtual token counter at one deployment: tokens served, divided by its weight.

    `active` says whether the tenant had queued or running jobs at the last pick: one that comes back is lifted,
    and is served ahead of its turn until its counter has reached `ahead_until`.
    """

    __tablename__ = "service_counters"

    deployment: Mapped[str] = mapped_column(ForeignKey("deployments.name", ondelete="CASCADE"), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True)
    served: Mapped[float] = mapped_column(server_default="0")
    active: Mapped[bool] = mapped_column(server_default=text("true"))
    ahead_until: Mapped[float] = mapped_column(server_default="0")


class JobLength(Base):
    """How long the recent jobs of one adapter were, on average; `adapter_key` 0 is the bare base."""

    __tablename__ = "job_lengths"

    deployment: Mapped[str] = mapped_column(ForeignKey("deployments.name", ondelete="CASCADE"), primary_key=True)
    tenant_id: Mapped[str] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True)
    adapter_key: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    prompt_tokens: Mapped[float]
    output_tokens: Mapped[float]
