"""The routes as the app has them, for tests that must not miss a new one."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import FastAPI
from starlette.routing import Route

PUBLIC = {"/livez", "/readyz", "/openapi.json"}


@dataclass(frozen=True)
class Known:
    """One method of one route."""

    method: str
    path: str


def routes_of(app: FastAPI) -> list[Known]:
    """Every method of every route. Mounts are refused: nobody would see what is inside."""
    assert all(isinstance(route, Route) for route in app.routes)
    routes = [route for route in app.routes if isinstance(route, Route)]
    found = [Known(method, route.path) for route in routes for method in route.methods or ()]
    return sorted(found, key=lambda known: (known.path, known.method))
