"""/v1/adapters: push, list, activate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from registry import adapter_files, adapters
from registry.settings import Settings
from tests.world import World

Parts = dict[str, tuple[str, bytes]]


@pytest.fixture(autouse=True)
def _nothing_stays_in_the_spool(settings: Settings) -> object:
    yield
    assert not list(settings.spool_dir.glob("*"))


def test_a_pushed_adapter_is_kept_and_becomes_active(
    acme: TestClient, adapter_form: Callable[..., Parts], world: World
) -> None:
    answer = acme.post("/v1/adapters", data={"name": "tickets"}, files=adapter_form())
    pushed = answer.json()
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/v1/adapters/tickets"
    assert (pushed["id"], pushed["base_model"], pushed["rank"], pushed["is_active"]) == ("tickets@1", "Tiny", 8, True)
    assert pushed["base_stated_by"] is None
    assert acme.get("/v1/adapters").json()["data"] == [pushed]
    folder = stored(world, "tickets")
    assert sorted(path.name for path in folder.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    assert adapter_files.digest(folder) == pushed["digest"]


def stored(world: World, name: str) -> Path:
    with world.db.transaction() as session:
        return Path(adapters.get(session, "acme", name, 1).path)


def test_files_may_be_named_by_their_file_names(acme: TestClient, adapter_form: Callable[..., Parts]) -> None:
    parts = [("files", part) for part in adapter_form().values()]
    assert acme.post("/v1/adapters", data={"name": "tickets"}, files=parts).status_code == 201


def test_a_second_version_waits_until_it_is_activated(acme: TestClient, adapter_form: Callable[..., Parts]) -> None:
    for seed in (1, 2):
        assert acme.post("/v1/adapters", data={"name": "tickets"}, files=adapter_form(seed)).status_code == 201
    assert active(acme) == [1]
    assert acme.post("/v1/adapters/tickets/activate", json={"version": 2}).json()["is_active"] is True
    assert active(acme) == [2]
    third = acme.post("/v1/adapters", data={"name": "tickets", "activate": "true"}, files=adapter_form(3))
    assert (third.status_code, active(acme)) == (201, [3])
    assert acme.post("/v1/adapters/tickets/activate", json={"version": 9}).status_code == 404
    assert active(acme) == [3]


def active(client: TestClient) -> list[int]:
    versions = client.get("/v1/adapters/tickets").json()["data"]
    return [version["version"] for version in versions if version["is_active"]]


def test_of_two_who_activate_upon_what_they_saw_one_is_told_to_look_again(acme: TestClient, world: World) -> None:
    for _ in range(3):
        world.adapter("acme", "tickets")
    seen = acme.get("/v1/adapters/tickets").headers["etag"]
    assert seen == '"1"'
    first = acme.post("/v1/adapters/tickets/activate", json={"version": 2}, headers={"if-match": seen})
    assert (first.status_code, first.headers["etag"]) == (200, '"2"')
    second = acme.post("/v1/adapters/tickets/activate", json={"version": 3}, headers={"if-match": seen})
    assert (second.status_code, second.json()["error"]["code"]) == (412, "precondition_failed")
    assert acme.get("/v1/adapters/tickets").headers["etag"] == '"2"'
    for if_match, status in (
        ('"7", "2"', 200),
        ("*", 200),
        ("3", 412),
        ('W/"3"', 412),
        ('"none"', 412),
        (f'"{"9" * 5000}"', 412),
    ):
        answer = acme.post("/v1/adapters/tickets/activate", json={"version": 3}, headers={"if-match": if_match})
        assert answer.status_code == status, if_match
    assert acme.post("/v1/adapters/tickets/activate", json={"version": 1}).status_code == 200


def test_a_first_version_can_be_pushed_without_activating_it(
    acme: TestClient, adapter_form: Callable[..., Parts]
) -> None:
    answer = acme.post("/v1/adapters", data={"name": "tickets", "activate": "false"}, files=adapter_form())
    assert (answer.status_code, answer.json()["is_active"]) == (201, False)


def test_a_stated_base_is_audited_only_where_it_overrules(acme: TestClient, adapter_form: Callable[..., Parts]) -> None:
    good = adapter_form()
    answer = acme.post("/v1/adapters", data={"name": "same", "base_model": "Tiny"}, files=good)
    assert (answer.status_code, answer.json()["base_stated_by"]) == (201, None)
    config = good["adapter_config"][1].replace(b'"base_model_name_or_path": "', b'"base_model_name_or_path": "other/')
    renamed = {**good, "adapter_config": ("adapter_config.json", config)}
    refused = acme.post("/v1/adapters", data={"name": "other"}, files=renamed)
    assert (refused.status_code, refused.json()["reason"]) == (422, "base_mismatch")
    answer = acme.post("/v1/adapters", data={"name": "other", "base_model": "Tiny"}, files=renamed)
    assert answer.status_code == 201
    assert answer.json()["base_stated_by"].startswith("key:")


def test_a_bad_adapter_is_refused_with_reason_and_repair_and_leaves_nothing(
    acme: TestClient, adapter_form: Callable[..., Parts]
) -> None:
    good = adapter_form()
    cut = {**good, "adapter_model": ("adapter_model.safetensors", good["adapter_model"][1][:-10])}
    answer = acme.post("/v1/adapters", data={"name": "tickets"}, files=cut)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "adapter_rejected")
    assert answer.json()["error"]["reason"] == answer.json()["reason"]
    assert acme.get("/v1/adapters").json()["data"] == []


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({}, 400, "name"),
        ({"name": "No Slug"}, 400, "adapter"),
        ({"name": "Tiny"}, 400, "adapter"),
        ({"name": "x\0"}, 400, "name"),
        ({"name": "x", "base_model": "y\0"}, 400, "base_model"),
        ({"name": "x", "base_model": "nothing"}, 404, "base_model"),
        ({"name": "x", "activate": "perhaps"}, 400, "activate"),
        ({"name": "x", "tenant_id": "globex"}, 400, None),
        ({"name": "n" * 5000}, 413, None),
    ],
)
def test_a_bad_field_of_the_form_is_refused(
    acme: TestClient, adapter_form: Callable[..., Parts], fields: dict[str, str], status: int, param: str | None
) -> None:
    answer = acme.post("/v1/adapters", data=fields, files=adapter_form())
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text


def test_a_base_that_does_not_exist_is_not_repeated(acme: TestClient, adapter_form: Callable[..., Parts]) -> None:
    answer = acme.post("/v1/adapters", data={"name": "x", "base_model": "카나리아"}, files=adapter_form())
    assert answer.status_code == 404
    assert "카나리아" not in answer.text


def test_the_name_of_a_base_is_taken(acme: TestClient, adapter_form: Callable[..., Parts], world: World) -> None:
    world.base("small")
    answer = acme.post("/v1/adapters", data={"name": "small"}, files=adapter_form())
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


def test_a_form_without_exactly_the_two_files_is_refused(acme: TestClient, adapter_form: Callable[..., Parts]) -> None:
    good = adapter_form()
    parts = list(good.items())
    for files in (
        parts[:1],
        parts[1:],
        [*parts, parts[0]],
        [*parts, ("files", ("adapter_model.bin", b"\x80\x02"))],
        [*parts, ("archive", ("adapter.tar.gz", b"\x1f\x8b"))],
        [*parts, ("files", ("../../etc/passwd", b"x"))],
        [*parts[:1], ("files", ("../adapter_model.safetensors", good["adapter_model"][1]))],
    ):
        answer = acme.post("/v1/adapters", data={"name": "x"}, files=files)
        assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"{}", 415),
        ("multipart/form-data", b"", 400),
        ("multipart/form-data; boundary=" + "b" * 71, b"", 400),
        ("multipart/form-data; boundary=b", b"", 400),
        ("multipart/form-data; boundary=b", b"no form", 400),
        ("multipart/form-data; boundary=b", b'--b\r\ncontent-disposition: form-data; name="name"\r\n\r\nx', 400),
        ("multipart/form-data; boundary=b", b"--b\r\n" + b"x-a: y\r\n" * 100 + b"\r\nx\r\n--b--", 400),
        ("multipart/form-data; boundary=b", b"--b\r\nx: " + b"y" * 100_000, 400),
        ("multipart/form-data; boundary=b", b"--b\r\n\r\nnameless\r\n--b--\r\n", 400),
    ],
    ids=range(9),
)
def test_a_broken_form_is_refused(acme: TestClient, content_type: str, body: bytes, status: int) -> None:
    answer = acme.post("/v1/adapters", content=body, headers={"content-type": content_type})
    assert answer.status_code == status, answer.text


def test_a_file_above_its_limit_is_cut_off(acme: TestClient, adapter_form: Callable[..., Parts]) -> None:
    config = ("adapter_config.json", b" " * 300_000)
    answer = acme.post("/v1/adapters", data={"name": "x"}, files={**adapter_form(), "adapter_config": config})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
