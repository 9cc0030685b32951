"""The tables, one file a family. The migrations make them; a test compares the two."""

from registry.models.adapters import Adapter
from registry.models.base import Base
from registry.models.bases import BaseAlias, BaseModel, Deployment
from registry.models.batches import BadLine, Batch, File
from registry.models.jobs import Job, JobInput, JobOutput
from registry.models.tenants import ApiKey, Tenant
from registry.models.usage import Tally, UsageDay
from registry.models.workers import Worker

__all__ = [
    "Adapter",
    "ApiKey",
    "BadLine",
    "Base",
    "BaseAlias",
    "BaseModel",
    "Batch",
    "Deployment",
    "File",
    "Job",
    "JobInput",
    "JobOutput",
    "Tally",
    "Tenant",
    "UsageDay",
    "Worker",
]
