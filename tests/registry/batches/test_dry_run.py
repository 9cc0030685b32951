"""Trying a batch without making it."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import text

from registry.batches.create import Submission
from registry.batches.dry_run import DryRun, dry_run
from tests.registry.batches.submissions import Submissions, line


def tried(submissions: Submissions, submission: Submission) -> DryRun:
    return dry_run(submissions.database, submission, submissions.settings)


def test_tokens_are_counted_exactly_and_nothing_is_stored(submissions: Submissions) -> None:
    checked = submissions.check(line("a", prompt="12345", max_tokens=3), line("b", prompt="한"))
    found = tried(submissions, checked)
    assert (found.would_run, found.lines, found.bad_lines, found.errors) == (True, 2, 0, None)
    assert (found.prompt_tokens, found.max_output_tokens) == (5 + 3, 3 + 256)
    assert (found.quota_use.queued_jobs.takes, found.quota_use.tokens_per_day.takes) == (2, 8 + 259)
    assert [submissions.count(table) for table in ("batches", "jobs", "job_inputs")] == [0, 0, 0]


def test_a_default_is_lowered_to_what_the_prompt_leaves(submissions: Submissions) -> None:
    found = tried(submissions, submissions.check(line("a", prompt="a" * 500)))
    assert (found.prompt_tokens, found.max_output_tokens) == (500, 12)


def test_lines_that_turn_out_too_long_are_listed_among_the_bad_ones_in_line_order(submissions: Submissions) -> None:
    lines = (line("a", prompt="a" * 600), b"{", line("c", prompt="a" * 510, max_tokens=3), line("d", prompt="a"))
    found = tried(submissions, submissions.check(*lines))
    assert not found.would_run
    assert found.errors is not None
    assert [(error.line, error.code) for error in found.errors.data] == [
        (1, "prompt_too_long"),
        (2, "invalid_json_line"),
        (3, "prompt_too_long"),
    ]
    assert (found.lines, found.bad_lines, found.quota_use.queued_jobs.takes) == (4, 3, 1)


def test_the_time_is_unknown_until_enough_of_the_tenants_jobs_have_run(submissions: Submissions) -> None:
    submissions.world.job("acme")
    assert tried(submissions, submissions.check(line())).estimated_s is None


def test_the_time_follows_from_the_rate_of_the_last_jobs_and_what_waits(submissions: Submissions) -> None:
    jobs = [submissions.world.job("acme") for _ in range(30)]
    finish = text("""
        UPDATE jobs SET state = :state, worker = uuidv7(), started_at = now() - make_interval(secs => :ago),
            finished_at = CASE WHEN :state = 'succeeded' THEN now() - make_interval(secs => :ago - 2) END
        WHERE id = :id""")
    with submissions.world.db.transaction() as session:
        for number, job in enumerate(jobs[:20]):
            session.execute(text("UPDATE jobs SET state = 'dispatched' WHERE id = :id"), {"id": job})
            ago = timedelta(seconds=2 + 38 * number / 19).total_seconds()
            for state in ("running", "succeeded"):
                session.execute(finish, {"id": job, "state": state, "ago": ago})
    # Twenty jobs in forty seconds; ten wait already.
    found = tried(submissions, submissions.check(*[line(str(n)) for n in range(90)]))
    assert found.estimated_s == 200.0


def test_what_it_takes_of_the_quotas_stands_beside_what_is_used_and_allowed(submissions: Submissions) -> None:
    for _ in range(3):
        submissions.world.job("acme")
    found = tried(submissions, submissions.check(line("a"), line("b"))).quota_use.queued_jobs
    assert (found.takes, found.used, found.limit) == (2, 3, submissions.settings.quota_queued_jobs)
