"""The files of a batch: OpenAI's lines, in input order, whole whatever the text, as large as announced."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion
from sqlalchemy import text

from api.errors import KINDS
from registry.batches import outputs, purge
from registry.db import Database
from tests.registry.batches.batch_rig import Batches, parsed

ODD = '“요약” \u2028\u2029\x85 \x7f \x1f \\ / " \t\r\n 👩‍👩‍👧 e\u0301 é'


def test_an_output_line_is_openais(batches: Batches) -> None:
    batch_id = batches.make(1)
    batches.run(batch_id, succeed=[1])
    [line] = batches.output(batch_id)
    job_hex = batches.jobs(batch_id)[1].hex
    assert (line["id"], line["custom_id"], line["error"]) == (f"batch_req_{job_hex}", "line-1", None)
    assert (line["response"]["status_code"], line["response"]["request_id"]) == (200, f"job_{job_hex}")
    body = line["response"]["body"]
    completion = ChatCompletion.model_validate(body)
    assert completion.choices[0].message.content == "Summary 1 “요약” \u2028\x7f \\ \t\n"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.total_tokens) == (11, 16)
    assert body["lorry"]["timing"]["decode_ms"] == 4.0


def test_a_batch_of_completions_has_their_shape(batches: Batches) -> None:
    batch_id = batches.make(1, endpoint="/v1/completions")
    batches.run(batch_id, succeed=[1])
    [line] = batches.output(batch_id, "/v1/completions")
    completion = Completion.model_validate(line["response"]["body"])
    assert completion.object == "text_completion"
    assert completion.choices[0].text.startswith("Summary 1")


def test_the_adapters_version_is_in_the_line(batches: Batches) -> None:
    batches.world.adapter()
    batch_id = batches.make(1, adapter=batches.world.adapter())
    batches.run(batch_id, succeed=[1])
    [line] = batches.output(batch_id)
    body = line["response"]["body"]
    assert (body["model"], body["lorry"]["adapter_version"]) == ("tickets", 2)


def test_lines_come_in_input_order_with_refused_ones_in_their_places(batches: Batches) -> None:
    batch_id = batches.make(9, bad=[2, 7], on_bad_line="skip")
    batches.run(batch_id, succeed=[9, 4, 1], fail=[8, 3])
    batches.window_passes(batch_id)
    assert [line["lorry"]["line"] for line in batches.output(batch_id)] == [1, 4, 9]
    errors = batches.errors(batch_id)
    assert [line["lorry"]["line"] for line in errors] == [2, 3, 5, 6, 7, 8]
    refused = errors[0]
    assert (refused["custom_id"], refused["response"]["status_code"], refused["error"]) == (None, 400, None)
    assert refused["response"]["body"]["error"]["code"] == "invalid_json_line"
    failed = errors[1]
    assert failed["response"]["body"]["error"] == {
        "message": "Submit again.",
        "type": "server_error",
        "param": None,
        "code": "generation_failed",
    }
    assert errors[2]["response"] is None
    assert errors[2]["error"]["code"] == "batch_expired"
    assert len({line["id"] for line in errors}) == 6


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_pages_join_without_gap_or_repetition(batches: Batches, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    batch_id = batches.make(7, bad=[4], on_bad_line="skip")
    batches.run(batch_id, succeed=[1, 2, 3], fail=[5, 6, 7])
    monkeypatch.setattr(outputs, "PAGE_LINES", page)
    assert [line["lorry"]["line"] for line in batches.output(batch_id)] == [1, 2, 3]
    assert [line["lorry"]["line"] for line in batches.errors(batch_id)] == [4, 5, 6, 7]


def test_a_page_of_long_lines_is_cut_by_size(batches: Batches, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_id = batches.make(5)
    batches.run(batch_id, succeed=[1, 2, 3, 4, 5])
    monkeypatch.setattr(outputs, "PAGE_BYTES", 10)
    pages = list(outputs.stream_output(batches.db, "acme", batch_id, "/v1/chat/completions"))
    assert [len(parsed(page)) for page in pages] == [1] * 5


def test_any_text_comes_back_as_it_was_and_the_size_is_exact(batches: Batches) -> None:
    batch_id = batches.make(2, bad=[2], on_bad_line="skip")
    batches.run(batch_id, succeed=[1])
    with batches.db.transaction() as session:
        session.execute(text("UPDATE job_outputs SET text = :odd"), {"odd": ODD})
        session.execute(text("UPDATE jobs SET custom_id = :odd"), {"odd": ODD})
        session.execute(text("UPDATE batch_bad_lines SET custom_id = :odd"), {"odd": ODD})
    [line], [refused] = batches.output(batch_id), batches.errors(batch_id)
    assert line["response"]["body"]["choices"][0]["message"]["content"] == ODD
    assert line["custom_id"] == refused["custom_id"] == ODD
    batches.dispatch()
    sent = [
        b"".join(stream(batches.db, "acme", batch_id, "/v1/chat/completions"))
        for stream in (outputs.stream_output, outputs.stream_errors)
    ]
    with batches.db.transaction() as session:
        sizes = session.scalars(text("SELECT bytes FROM files ORDER BY content DESC")).all()
    assert sizes == [len(content) for content in sent]


def test_a_purged_line_says_so_in_its_place(batches: Batches) -> None:
    batch_id = batches.make(2)
    batches.run(batch_id, succeed=[1, 2])
    with batches.db.transaction() as session:
        purge.purge_job(session, "acme", batches.jobs(batch_id)[1])
    purged, kept = batches.output(batch_id)
    assert (purged["response"], purged["error"]["code"]) == (None, "purged")
    assert kept["error"] is None


def test_another_tenant_reads_nothing(batches: Batches, api_db: Database) -> None:
    batch_id = batches.make(1)
    batches.run(batch_id, succeed=[1])
    batches.world.tenant("globex")
    for tenant in ("globex", "acme"):
        sent = b"".join(outputs.stream_output(api_db, tenant, batch_id, "/v1/chat/completions"))
        assert bool(sent) == (tenant == "acme")


@pytest.mark.parametrize(
    "code", ["prompt_too_long", "invalid_value", "adapter_unavailable", "output_corrupted", "worker_lost"]
)
def test_a_failed_line_has_the_status_that_the_api_gives_its_code(batches: Batches, code: str) -> None:
    batch_id = batches.make(1)
    batches.run(batch_id, fail=[1])
    with batches.db.transaction() as session:
        session.execute(text("UPDATE jobs SET error_code = :code"), {"code": code})
    [line] = batches.errors(batch_id)
    response: dict[str, Any] = line["response"]
    known = KINDS.get(code)
    assert response["status_code"] == (known.status if known else 500)
    assert (response["body"]["error"]["type"] == "invalid_request_error") == (response["status_code"] < 500)
