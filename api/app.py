"""The application: which routes there are, who may reach them, and what wraps them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Depends, FastAPI
from starlette.concurrency import run_in_threadpool

from api import adapters, errors, health, jobs, models, openapi
from api.deps import authenticated
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
    openapi.install(app)
    app.include_router(health.router)
    for part in (jobs, models, adapters):
        app.include_router(part.router, prefix="/v1", dependencies=[Depends(authenticated)])
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    services: Services = app.state.services
    try:
        yield
    finally:
        await run_in_threadpool(services.close)
