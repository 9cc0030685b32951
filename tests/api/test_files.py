"""/v1/files over the real database and disk."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from api import file_form
from registry.files import FRESH_PREFIX
from registry.settings import Settings
from tests.world import World

DATA = b'{"custom_id": "a"}\n'


def upload(client: TestClient, data: bytes = DATA, name: str = "in.jsonl", **fields: str) -> Any:
    return client.post("/v1/files", data={"purpose": "batch", **fields}, files={"file": (name, data)})


def left_behind(settings: Settings) -> list[Path]:
    """Bytes of uploads that were not kept."""
    return list((settings.store_dir / "files").glob(f"{FRESH_PREFIX}*"))


def kept(settings: Settings) -> list[Path]:
    return [path for path in (settings.store_dir / "files").rglob("*") if path.is_file()]


@pytest.fixture(autouse=True)
def _no_files(settings: Settings) -> None:
    for path in kept(settings):
        path.unlink()


def test_an_upload_is_openais_file_object(acme: TestClient, world: World, settings: Settings) -> None:
    answer = upload(acme, DATA, "in.jsonl", **{"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"})
    file = answer.json()
    assert answer.status_code == 200, answer.text
    assert file == {
        "id": file["id"], "object": "file", "bytes": len(DATA), "created_at": file["created_at"],
        "expires_at": file["created_at"] + 3600, "filename": "in.jsonl", "purpose": "batch", "status": "processed",
        "status_details": None,
    }  # fmt: skip
    assert acme.get(f"/v1/files/{file['id']}").json() == file
    assert acme.get(f"/v1/files/{file['id']}/content").content == DATA
    with world.db.transaction() as session:
        row = session.execute(text("SELECT sha256, path FROM files")).one()
    assert row.sha256 == hashlib.sha256(DATA).hexdigest()
    assert [str(path) for path in kept(settings)] == [row.path]


def test_parts_come_in_any_order(acme: TestClient) -> None:
    file, purpose = ("file", ("x.jsonl", DATA)), ("purpose", (None, b"batch"))
    for parts in ([file, purpose], [purpose, file]):
        assert acme.post("/v1/files", files=parts).status_code == 200


def test_deleting_removes_row_and_bytes(acme: TestClient, settings: Settings) -> None:
    file = upload(acme).json()["id"]
    assert acme.delete(f"/v1/files/{file}").json() == {"id": file, "object": "file", "deleted": True}
    assert kept(settings) == []
    for answer in (
        acme.get(f"/v1/files/{file}"),
        acme.delete(f"/v1/files/{file}"),
        acme.get(f"/v1/files/{file}/content"),
    ):
        assert answer.status_code == 404


def test_files_are_paged_without_gaps_in_both_orders(acme: TestClient) -> None:
    made = [upload(acme).json()["id"] for _ in range(5)]
    for order, expected in (("asc", made), ("desc", made[::-1])):
        seen: list[str] = []
        after: dict[str, str] = {}
        while True:
            page = acme.get("/v1/files", params={"limit": 2, "order": order, **after}).json()
            seen += [file["id"] for file in page["data"]]
            if not page["has_more"]:
                break
            after = {"after": page["last_id"]}
        assert seen == expected
    assert [file["id"] for file in acme.get("/v1/files").json()["data"]] == made[::-1]
    assert acme.get("/v1/files?purpose=batch_output").json()["data"] == []


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "order=up", "after=file-x", "purpose=%00", "after=%00"])
def test_a_bad_query_is_refused_by_name(acme: TestClient, query: str) -> None:
    answer = acme.get(f"/v1/files?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])


def test_files_of_others_answer_like_missing_ones(acme: TestClient, as_tenant: Callable[[str], TestClient]) -> None:
    foreign, missing = upload(as_tenant("globex")).json()["id"], "file-" + "0" * 32
    for call in (acme.get, acme.delete, lambda path: acme.get(f"{path}/content")):
        answers = [call(f"/v1/files/{file}") for file in (foreign, missing)]
        assert [answer.status_code for answer in answers] == [404, 404]
        assert answers[0].json()["error"] == answers[1].json()["error"]
    afters = [acme.get("/v1/files", params={"after": file}) for file in (foreign, missing)]
    assert [answer.status_code for answer in afters] == [400, 400]
    assert afters[0].json()["error"] == afters[1].json()["error"]
    assert as_tenant("globex").get(f"/v1/files/{foreign}").status_code == 200


def test_an_expired_file_is_gone(acme: TestClient, world: World) -> None:
    file = upload(acme).json()["id"]
    with world.db.transaction() as session:
        session.execute(text("UPDATE files SET expires_at = now() - interval '1 second'"))
    assert acme.get(f"/v1/files/{file}").status_code == 404
    assert acme.get("/v1/files").json()["data"] == []


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\in.jsonl", "in.jsonl"),
        ("티켓.jsonl", "티켓.jsonl"),
        ("a\u202eb\x07c.jsonl", "abc.jsonl"),
        ("..", ".."),
        ("", "upload"),
        ("/", "upload"),
        ("\x00", "upload"),
    ],
)
def test_names_are_cleaned(given: str, stored: str) -> None:
    assert file_form.clean_name(given) == stored


@pytest.mark.parametrize("name", [b"a\x00b.jsonl", b"../\x00", b"\xff\xfe.jsonl", b"n" * 10_000], ids=repr)
def test_no_name_is_a_server_error(acme: TestClient, settings: Settings, name: bytes) -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="' + name + b'"\r\n\r\nabc\r\n--x--\r\n'
    )
    answer = acme.post("/v1/files", content=body, headers={"content-type": "multipart/form-data; boundary=x"})
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 200:
        assert not set("\0/") & set(answer.json()["filename"])
    else:
        assert kept(settings) == []


@pytest.mark.parametrize(
    ("data", "files", "status", "param"),
    [
        ({"purpose": "batch"}, [], 400, "file"),
        ({}, [("file", ("a", DATA))], 400, "purpose"),
        ({"purpose": "user_data"}, [("file", ("a", DATA))], 400, "purpose"),
        ({"purpose": "fine-tune"}, [("file", ("a", DATA))], 400, "purpose"),
        ({"purpose": "batch"}, [("file", ("a", DATA)), ("file", ("b", DATA))], 400, "file"),
        ({"purpose": "batch", "expires_after[seconds]": "5"}, [("file", ("a", DATA))], 400, "seconds"),
        ({"purpose": "batch", "expires_after[seconds]": "soon"}, [("file", ("a", DATA))], 400, "seconds"),
        ({"purpose": "batch", "expires_after[anchor]": "x"}, [("file", ("a", DATA))], 400, "anchor"),
        ({"purpose": "batch", "color": "red"}, [("file", ("a", DATA))], 400, None),
        ({"purpose": "x" * 2000}, [("file", ("a", DATA))], 413, "purpose"),
        ({"purpose": "batch"}, [("other", ("a", DATA))], 400, None),
    ],
)
def test_a_form_that_is_not_right_is_refused_and_leaves_nothing(
    acme: TestClient, settings: Settings, world: World, data: Any, files: Any, status: int, param: str | None
) -> None:
    parts = [*files, *((name, (None, value)) for name, value in data.items())]
    answer = acme.post("/v1/files", files=parts)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
    assert kept(settings) == []
    with world.db.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM files")) == 0


def test_a_file_above_the_limit_is_refused_while_it_comes(
    acme: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = acme.app.state.services  # type: ignore[attr-defined]
    monkeypatch.setattr(services, "settings", services.settings.model_copy(update={"max_file_bytes": 1000}))
    assert upload(acme, b"x" * 1000).status_code == 200
    over = upload(acme, b"x" * 1001)
    assert (over.status_code, over.json()["error"]["code"]) == (413, "request_too_large")
    assert len(kept(settings)) == 1


def test_a_full_disk_is_told_and_leaves_nothing(
    acme: TestClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(file_form._FileForm, "_open", lambda form, name: _fill(form, full))
    answer = upload(acme)
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "storage_full")
    assert kept(settings) == []


def _fill(form: Any, full: Callable[..., None]) -> None:
    class FullDisk:
        def __init__(self, path: Path) -> None:
            self._file = path.open("xb")
            self.write = full

        def close(self) -> None:
            self._file.close()

    form._filename = "in.jsonl"
    form._file = FullDisk(form._path)


def test_compressed_forms_are_not_taken(acme: TestClient) -> None:
    answer = acme.post("/v1/files", files={"file": ("a", DATA)}, headers={"content-encoding": "gzip"})
    assert answer.status_code == 415


def test_missing_bytes_are_no_empty_download(acme: TestClient, settings: Settings) -> None:
    file = upload(acme).json()["id"]
    kept(settings)[0].unlink()
    assert acme.get(f"/v1/files/{file}/content").status_code == 404
