"""What tenants submit in a fault run, and what was acknowledged: the left side of "acknowledged is finished"."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Sequence

from registry import adapters, jobs
from registry.shapes import JobCreate
from tests.world import World

TENANTS = ("acme", "globex", "hooli", "initech", "umbrella")
NAMES = ("tickets", "notes")
CANARY = "canary-4f1d9c"
"""In every document, custom id and metadata. In a log, the broker or an error it would be a leak."""


class Load:
    """Jobs of five tenants with two adapters each, through the registry; every commit is an acknowledgement."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.acknowledged: dict[uuid.UUID, frozenset[str]] = {}
        """Job -> the ends that are right for it."""
        world.base("Tiny")
        for tenant in TENANTS:
            for name in NAMES:
                world.adapter(tenant, name)

    def expect(self, ids: Sequence[uuid.UUID], *ends: str) -> list[uuid.UUID]:
        """These jobs were acknowledged; they may end so, `succeeded` if nothing is said."""
        with self._lock:
            self.acknowledged |= dict.fromkeys(ids, frozenset(ends or ("succeeded",)))
        return list(ids)

    def submit(
        self,
        count: int,
        *,
        ends: Sequence[str] = (),
        models: Sequence[str] = NAMES,
        tenants: Sequence[str] = TENANTS,
        document: str = "",
        max_tokens: int = 16,
    ) -> list[uuid.UUID]:
        """`count` jobs in one transaction, round robin over tenants and models."""
        made = []
        with self._world.db.transaction() as session:
            for number in itertools.islice(self._numbers, count):
                tenant, model = tenants[number % len(tenants)], models[(number // len(tenants)) % len(models)]
                resolved = adapters.resolve(session, tenant, model)
                wanted = JobCreate(
                    model=model,
                    document=f"{CANARY} {number} {document}",
                    custom_id=f"{CANARY}-{number}",
                    metadata={"secret": CANARY},
                )
                made.append(jobs.submit(session, tenant, wanted, resolved, max_tokens))
        return self.expect(made, *ends)
