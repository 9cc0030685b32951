"""The tables, one file a family. The migrations make them; a test compares the two."""

from registry.models.adapters import Adapter
from registry.models.base import Base
from registry.models.bases import BaseAlias, BaseModel, Deployment
from registry.models.batches import BadLine, Batch, File
from registry.models.jobs import Job, JobInput, JobOutput
from registry.models.limits import JobsEnded, JobsTaken, KeptAnswer, PostRate, TenantLimit
from registry.models.planning import JobLength, ServiceCounter
from registry.models.tenants import ApiKey, Tenant
from registry.models.usage import Tally, UsageDay
from registry.models.webhooks import WebhookDelivery, WebhookEndpoint, WebhookStream
from registry.models.workers import Restore, Worker

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
    "JobLength",
    "JobOutput",
    "JobsEnded",
    "JobsTaken",
    "KeptAnswer",
    "PostRate",
    "Restore",
    "ServiceCounter",
    "Tally",
    "Tenant",
    "TenantLimit",
    "UsageDay",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookStream",
    "Worker",
]
