"""The application: which routes there are, who may reach them, and what wraps them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from starlette.concurrency import run_in_threadpool

from api import (
    adapters,
    batch_reads,
    batches,
    chat,
    errors,
    files,
    health,
    idempotency,
    jobs,
    models,
    openapi,
    usage,
    webhook_deliveries,
    webhook_endpoints,
)
from api.deps import authenticated
from api.idempotency import open_once
from api.request_log import RequestLog
from api.services import Services
from registry.settings import Settings


def create_app(settings: Settings) -> FastAPI:
    """The app for these settings. The database need not be there yet: routes answer 503 until it is."""
    app = FastAPI(
        title="Lorry",
        version="v1",
        description="Many tenants' LoRA jobs in one GPU batch.",
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = Services(settings)
    app.add_middleware(RequestLog)
    errors.install(app)
    idempotency.install(app)
    openapi.install(app)
    app.include_router(health.router)
    for part in (
        chat,
        jobs,
        files,
        batches,
        batch_reads,
        models,
        adapters,
        webhook_endpoints,
        webhook_deliveries,
        usage,
    ):
        app.include_router(part.router, prefix="/v1", dependencies=[Depends(authenticated), Depends(open_once)])
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    await run_in_threadpool(services.files.sweep)
    services.pulse.start()
    try:
        yield
    finally:
        await run_in_threadpool(services.close)
