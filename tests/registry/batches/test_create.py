"""What of a submission is stored, and when nothing is."""

from __future__ import annotations

import uuid
from datetime import UTC, timedelta

import pytest
from sqlalchemy import text

from registry.batches import ingest, views
from registry.db import Database
from registry.errors import LorryError
from tests.registry.batches.submissions import Submissions, line


def test_every_line_is_a_queued_job_in_line_order(submissions: Submissions) -> None:
    lines = [line(f"id-{n}", document=f"text {n}") for n in range(700)]
    batch_id = submissions.store(submissions.check(*lines[:300], b"", *lines[300:]))
    jobs = submissions.jobs(batch_id)
    assert [job["custom_id"] for job in jobs] == [f"id-{n}" for n in range(700)]
    assert [job["body"]["document"] for job in jobs] == [f"text {n}" for n in range(700)]
    assert [job["line_no"] for job in jobs] == [*range(1, 301), *range(302, 702)]
    assert {(job["state"], job["fence"], job["tenant_id"], job["body_tenant"], job["model"]) for job in jobs} == {
        ("queued", 0, "acme", "acme", "Tiny")
    }


def test_lines_wait_behind_single_jobs_and_end_with_their_window(submissions: Submissions) -> None:
    batch_id = submissions.store(submissions.check(line(), completion_window="2h"))
    (job,) = submissions.jobs(batch_id)
    assert job["priority"] > submissions.world.row(submissions.world.job())["priority"]
    assert job["deadline"] == job["expires_at"] == job["batch_created_at"] + timedelta(hours=2)
    assert job["created_at"] == job["batch_created_at"]
    assert job["day"] == job["created_at"].astimezone(UTC).date()


def test_a_batch_in_progress_says_what_it_is(submissions: Submissions, api_db: Database) -> None:
    batch_id = submissions.store(submissions.check(line("a"), line("b"), metadata={"k": "v"}))
    with api_db.transaction("acme") as session:
        view = views.get(session, "acme", batch_id)
    assert (view.status, view.request_counts.total, view.endpoint, view.model) == ("in_progress", 2, "/v1/jobs", "Tiny")
    assert (view.metadata, view.errors, view.input_file_id) == ({"k": "v"}, None, None)


def test_one_bad_line_fails_the_batch_and_nothing_of_it_runs(submissions: Submissions, api_db: Database) -> None:
    batch_id = submissions.store(submissions.check(line("a"), b"{", line("b")))
    with api_db.transaction("acme") as session:
        view = views.get(session, "acme", batch_id)
    assert (view.status, view.failed_at, view.request_counts.total) == ("failed", view.created_at, 0)
    assert view.errors is not None
    assert [(error.line, error.code) for error in view.errors.data] == [(2, "invalid_json_line")]
    assert (submissions.count("jobs"), submissions.count("job_inputs"), submissions.count("batch_bad_lines")) == (
        0,
        0,
        0,
    )


def test_skipped_lines_are_kept_for_the_error_file_and_count_as_failed(
    submissions: Submissions, api_db: Database
) -> None:
    lines = [line(f"id-{n}") for n in range(20)]
    batch_id = submissions.store(
        submissions.check(*lines, line("odd", model="Nobody"), b"{", metadata={"lorry.on_bad_line": "skip"})
    )
    with api_db.transaction("acme") as session:
        view = views.get(session, "acme", batch_id)
        kept = session.execute(text("SELECT line_no, custom_id, code, param FROM batch_bad_lines ORDER BY 1")).all()
    assert (view.status, view.request_counts.total, view.request_counts.failed) == ("in_progress", 22, 2)
    assert kept == [(21, "odd", "model_not_found", "model"), (22, None, "invalid_json_line", None)]
    assert len(submissions.jobs(batch_id)) == 20


def test_versions_are_pinned_when_the_batch_is_made(submissions: Submissions) -> None:
    first = submissions.world.adapter("acme", "tickets")
    second = submissions.world.adapter("acme", "tickets")
    checked = submissions.check(line("a", model="tickets"), line("b", model="tickets@2"), line("c"))
    jobs = submissions.jobs(submissions.store(checked))
    assert [job["adapter_id"] for job in jobs] == [first.adapter_id, second.adapter_id, None]
    assert [job["model"] for job in jobs] == ["tickets", "tickets@2", "Tiny"]


def test_an_adapter_of_another_tenant_is_no_model(submissions: Submissions) -> None:
    submissions.world.adapter("globex", "tickets")
    errors = submissions.check(line("a", model="tickets"), line("b", model="nothing")).intake.errors()
    assert [error["code"] for error in errors] == ["model_not_found"] * 2
    assert errors[0]["message"] == errors[1]["message"]


def test_a_stored_max_tokens_that_nobody_stated_may_be_lowered_by_the_worker(submissions: Submissions) -> None:
    jobs = submissions.jobs(submissions.store(submissions.check(line("a"), line("b", max_tokens=5))))
    assert [job["body"]["sampling"]["max_tokens"] for job in jobs] == [256, 5]
    assert [job["body"]["sampling"].get("may_lower") for job in jobs] == [True, None]


def test_an_end_in_the_middle_leaves_nothing(submissions: Submissions, api_db: Database) -> None:
    checked = submissions.check(*[line(str(n)) for n in range(50)])

    def interrupted() -> None:
        with api_db.transaction("acme") as session:
            checked.store(session)
            raise LorryError("stop")

    with pytest.raises(LorryError, match="stop"):
        interrupted()
    assert [submissions.count(table) for table in ("batches", "jobs", "job_inputs")] == [0, 0, 0]


def test_after_the_copy_the_transaction_is_the_tenants_again(submissions: Submissions, api_db: Database) -> None:
    submissions.world.job("globex")
    with api_db.transaction("acme") as session:
        submissions.check(line()).store(session)
        assert session.scalar(text("SELECT current_role")) == "lorry_api"
        assert session.scalar(text("SELECT count(*) FROM jobs")) == 1


def test_a_tenant_cannot_store_in_anothers_name(submissions: Submissions, api_db: Database) -> None:
    checked = submissions.check(line(), tenant_id="globex")
    with pytest.raises(Exception, match="row-level security"), api_db.transaction("acme") as session:
        checked.store(session)


def test_a_line_cannot_set_columns(submissions: Submissions) -> None:
    for field in ("tenant_id", "batch_id", "state", "priority", "deployment", "sampling"):
        (error,) = submissions.check(line(**{field: "x"})).intake.errors()
        assert (error["code"], error["param"]) == ("invalid_value", field)


def test_bodies_are_stored_as_they_are(submissions: Submissions) -> None:
    odd = 'quote " backslash \\ tab \t \u2028 \x7f 😀 end'
    (job,) = submissions.jobs(submissions.store(submissions.check(line(document=odd, metadata={"k": odd}))))
    assert (job["body"]["document"], job["body"]["metadata"]) == (odd, {"k": odd})


def test_a_long_copy_is_not_cut_by_the_apis_own_time_limit(submissions: Submissions, api_db: Database) -> None:
    with api_db.transaction("acme") as session:
        submissions.check(line()).store(session)
        assert session.scalar(text("SHOW statement_timeout")) == f"{ingest.TIMEOUT_S // 60}min"
    with api_db.transaction("acme") as session:
        assert session.scalar(text("SHOW statement_timeout")) == "30s"


def test_ids_are_in_order_of_time(submissions: Submissions) -> None:
    jobs = submissions.jobs(submissions.store(submissions.check(*[line(str(n)) for n in range(5)])))
    moments = [uuid.UUID(str(job["id"])).int >> 80 for job in jobs]
    assert moments == sorted(moments)
