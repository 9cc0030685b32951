"""`lorry submit` against a live server: what it sends, what it refuses, and how it ends."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.api.cli.called import call
from tests.api.cli.conftest import Lorry
from tests.api.cli.tenant import Tenant
from tests.api.finisher import Finisher
from tests.registry.batches.batch_rig import Batches
from tests.relay import Relay
from tests.world import World

LINES = b'{"document":"\xeb\xac\xb8\xec\x9d\x98"}\n{"document":"b","custom_id":"b"}\n'
BROKEN = LINES + b'{"document":\n'


def test_without_waiting_it_prints_the_id_alone_and_how_to_go_on(tenant: Tenant, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(LINES)
    answer = tenant("submit", tmp_path / "in.jsonl", "--model", "Tiny", "--completion-window", "2h")
    assert answer.status == 0, answer.err
    batch_id = answer.out.strip()
    assert f"lorry submit --batch {batch_id} --wait" in answer.err
    batch = tenant.http.get(f"/batches/{batch_id}").json()
    assert (batch["completion_window"], batch["request_counts"]["total"]) == ("2h", 2)


@pytest.fixture
def served(world: World) -> Iterator[None]:
    """Somebody runs what is queued and ends batches."""
    over = threading.Event()

    def dispatch() -> None:
        while not over.wait(0.05):
            Batches(world).dispatch()

    thread = threading.Thread(target=dispatch)
    with Finisher(world):
        thread.start()
        yield
        over.set()
        thread.join(10)


@pytest.mark.usefixtures("served")
def test_a_pipe_in_and_a_pipe_out(tenant: Tenant) -> None:
    answer = tenant("submit", "-", "--model", "Tiny", "--out", "-", stdin=LINES)
    batch_id = tenant.http.get("/batches").json()["data"][0]["id"]
    assert answer.status == 0, answer.err
    assert answer.out.encode() == tenant.results(batch_id)
    assert [json.loads(line)["custom_id"] for line in answer.out.splitlines()] == ["line-1", "b"]
    assert "2 of 2 done, 0 failed" in answer.err


def test_bad_lines_refuse_everything_with_their_numbers_and_ids(tenant: Tenant) -> None:
    bad = BROKEN + b'{"document":"","custom_id":"empty"}\n'
    answer = tenant("submit", "-", "--model", "Tiny", stdin=bad)
    assert (answer.status, answer.out) == (3, "")
    assert "line 3: " in answer.err
    assert "[invalid_json_line]" in answer.err
    assert "line 4 (empty): document: " in answer.err
    assert "Nothing runs: 2 bad lines. --on-bad-line skip" in answer.err


def test_a_dry_run_says_what_would_happen_and_stores_nothing(tenant: Tenant, world: World) -> None:
    good = tenant("submit", "-", "--model", "Tiny", "--dry-run", stdin=LINES)
    assert good.status == 0, good.err
    assert json.loads(good.out)["lines"] == 2
    bad = tenant("submit", "-", "--model", "Tiny", "--dry-run", stdin=BROKEN)
    assert bad.status == 1
    assert "line 3: " in bad.err
    assert json.loads(bad.out)["would_run"] is False
    with world.db.transaction() as session:
        assert session.scalar(text("SELECT count(*) FROM batches")) == 0


def test_doubled_ids_are_named_before_anything_is_sent(tenant: Tenant, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,document\n가,x\nb,y\n가,z\n")
    answer = tenant("submit", tmp_path / "in.csv", "--id-column", "id", "--model", "Tiny")
    assert answer.status == 2
    assert "'가' in row 1 (line 2) and row 3 (line 4)" in answer.err
    assert tenant.http.get("/batches").json()["data"] == []


def test_a_key_used_again_makes_no_second_batch_and_not_for_other_documents(tenant: Tenant) -> None:
    mine = ("submit", "-", "--model", "Tiny", "--idempotency-key", "monday")
    first, again = tenant(*mine, stdin=LINES), tenant(*mine, stdin=LINES)
    other = tenant(*mine, stdin=LINES + LINES.replace(b'"b"', b'"c"'))
    assert (first.status, again.status, again.out) == (0, 0, first.out)
    assert other.status == 3
    assert "[idempotency_key_reused]" in other.err
    assert len(tenant.http.get("/batches").json()["data"]) == 1


def test_failed_lines_make_the_status_1_and_are_in_the_table(tenant: Tenant, world: World, tmp_path: Path) -> None:
    batches = Batches(world)
    batch_id = batches.make(4, bad=[2])
    batches.run(batch_id, succeed=[1, 4], fail=[3])
    batches.dispatch()
    wire = f"batch_{batch_id.hex}"
    answer = tenant("submit", "--batch", wire, "--out", tmp_path / "out.csv")
    assert answer.status == 1
    assert f"lorry batches rerun {wire}" in answer.err
    raw = (tmp_path / "out.csv").read_bytes()
    assert raw.startswith(b"\xef\xbb\xbfline,custom_id,status,text,")
    with (tmp_path / "out.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["line"], row["status"], row["error_code"]) for row in rows] == [
        ("1", "succeeded", ""),
        ("2", "failed", "invalid_json_line"),
        ("3", "failed", "generation_failed"),
        ("4", "succeeded", ""),
    ]
    assert rows[0]["text"] == "Summary 1 “요약” \u2028\x7f \\ \t\n"
    assert sorted(file.name for file in tmp_path.glob("out*")) == ["out.csv"]


def test_a_server_that_is_away_ends_with_4_and_the_key_to_repeat_with(tenant: Tenant) -> None:
    relay = Relay(tenant.http.base_url.port or 0)
    relay.cut()
    tenant.by_way_of(relay.port)
    lost = tenant("submit", "-", "--model", "Tiny", "--retry-for", "0", stdin=LINES)
    assert lost.status == 4
    assert "does not answer (ConnectError)" in lost.err
    key = lost.err.split("--idempotency-key ")[1].split(":")[0]
    relay.mend()
    assert tenant("submit", "-", "--model", "Tiny", "--idempotency-key", key, stdin=LINES).status == 0
    relay.cut()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["submit"], "give documents"),
        (["submit", "-", "--batch", "batch_x"], "give documents"),
        (["submit", "-", "--out", "results.xlsx"], "end it in .jsonl, .csv or .tsv"),
        (["submit", "-", "--out", "nowhere/results.csv"], "its folder is not there"),
        (["submit", "-", "--encoding", "hangul"], "is not known here"),
        (["submit", "-"], "There is no document"),
    ],
)
def test_usage_errors_end_with_2(
    offline: Lorry, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    monkeypatch.setenv("LORRY_API_KEY", "lorry_any")
    answer = call(*arguments, stdin=b"\n\n")
    assert answer.status == 2
    assert told in answer.err


def test_without_a_key_it_says_what_to_set(offline: Lorry) -> None:
    answer = offline("batches", "list")
    assert answer.status == 2
    assert "Set LORRY_API_KEY" in answer.err


def test_a_key_that_is_not_valid_is_refused_with_3(tenant: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORRY_API_KEY", "lorry_wrong")
    tenant.by_way_of(tenant.http.base_url.port or 0)
    answer = tenant("batches", "list")
    assert answer.status == 3
    assert "[invalid_api_key]" in answer.err
    assert "lorry_wrong" not in answer.err
