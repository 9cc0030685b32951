"""/livez: the process answers. /readyz: it can do its work: the database is there, with a schema for it."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from api.deps import Shared, answering
from registry import migrations
from registry.errors import Unavailable

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """What a probe reads."""

    status: str = "ok"


@router.get("/livez")
async def livez() -> Health:
    """Always 200 while the process runs."""
    return Health()


@router.get("/readyz", dependencies=[Depends(answering)])
def readyz(services: Shared) -> Health:
    """200, or 503 while the database is away or lacks migrations of this release. A later release's schema will do."""
    with services.database.transaction() as session:
        if migrations.is_behind(migrations.current(session)):
            raise Unavailable("The database lacks migrations of this release; run `python -m registry.migrations`.")
    return Health()
