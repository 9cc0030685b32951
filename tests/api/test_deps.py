"""Keys, and the order of commit and answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi import FastAPI
from sqlalchemy import text
from starlette.testclient import TestClient

from api.app import create_app
from api.deps import Session
from registry import keys
from registry.settings import Settings
from tests.api.routes import PUBLIC, routes_of
from tests.world import World


def test_every_route_but_a_known_few_asks_for_a_key(app: FastAPI, stranger: TestClient, world: World) -> None:
    open_to_all = set()
    for known in routes_of(app):
        answer = stranger.request(known.method, known.path.replace("{", "").replace("}", ""))
        if answer.status_code != 401:
            open_to_all.add(known.path)
        elif known.method != "HEAD":
            assert answer.json()["error"]["code"] == "invalid_api_key"
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert open_to_all == PUBLIC


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer lorry_x", "Basic bG9ycnk6eA==", "Bearer lorry_aaaaaaaa_" + "b" * 43]
)
def test_a_key_that_is_none_answers_the_same(stranger: TestClient, world: World, header: str) -> None:
    answer = stranger.get("/v1/jobs", headers={"authorization": header} if header else {})
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "authentication_error"
    assert answer.json()["detail"] == stranger.get("/v1/jobs").json()["detail"]


def test_a_revoked_key_is_refused_at_once(acme: TestClient, world: World) -> None:
    assert acme.get("/v1/jobs").status_code == 200
    with world.db.transaction() as session:
        for row in keys.of_tenant(session, "acme"):
            keys.revoke(session, row.prefix)
    assert acme.get("/v1/jobs").status_code == 401


def test_the_body_is_not_read_before_the_key_is_known(stranger: TestClient, world: World) -> None:
    answer = stranger.post("/v1/jobs", content=b"\xff not json", headers={"content-type": "text/plain"})
    assert answer.status_code == 401


@pytest.fixture
def failing_commit(settings: Settings, database_url: str) -> FastAPI:
    """An app with one more route, whose transaction the database refuses at its very end."""
    app = create_app(settings)

    @app.get("/late")
    def late(session: Session) -> dict[str, str]:
        session.execute(text("CREATE TEMP TABLE late (n int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP"))
        session.execute(text("INSERT INTO late VALUES (1), (1)"))
        return {"status": "written"}

    return app


def test_no_answer_leaves_before_the_commit(
    failing_commit: FastAPI, as_tenant: Callable[[str], TestClient], world: World
) -> None:
    with TestClient(failing_commit, headers={"authorization": f"Bearer {world.key('acme')}"}) as client:
        assert client.get("/late").status_code == 409
