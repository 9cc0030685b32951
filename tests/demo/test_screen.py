"""What the demo shows."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from demo import screen as screens
from demo.client import Submitted
from demo.report import Outcome, build_report
from demo.screen import Live, Screen, show_result, show_samples
from demo.tickets import TENANTS, DemoTenant, held_out_tickets

ACME, *_, HANBIT = TENANTS


@pytest.fixture
def screen() -> Screen:
    """A screen that is a file, as in a log."""
    return Screen(Console(file=io.StringIO(), highlight=False, markup=False))


def _told(screen: Screen) -> str:
    assert isinstance(screen.console.file, io.StringIO)
    return screen.console.file.getvalue()


def _outcome(tenant: DemoTenant, text: str | None = None, **changes: Any) -> Outcome:
    ticket = held_out_tickets(tenant, 1)[0]
    job = {
        "id": f"job_{tenant.id}",
        "status": "succeeded",
        "model": "tickets",
        "output": {"text": ticket.summary if text is None else text},
        "usage": {"input_tokens": 70, "output_tokens": 20},
        "timing": None,
        "error": None,
    }
    return Outcome(tenant, ticket, job | changes)


def test_a_sample_shows_ticket_and_summary_in_the_tenant_s_language(screen: Screen) -> None:
    show_samples(screen, [_outcome(ACME), _outcome(HANBIT)])
    told = _told(screen)
    for tenant in (ACME, HANBIT):
        ticket = held_out_tickets(tenant, 1)[0]
        assert ticket.document in told
        assert ticket.summary in told
    assert "not as trained" not in told


def test_a_summary_of_another_tenant_s_form_is_pointed_out(screen: Screen) -> None:
    show_samples(screen, [_outcome(ACME, text=held_out_tickets(HANBIT, 1)[0].summary)])
    assert "not as trained: form, order number" in _told(screen)


def test_failures_are_counted_by_their_code(screen: Screen) -> None:
    lost = _outcome(ACME, status="failed", output=None, error={"code": "worker_lost", "message": "gone"})
    outcomes = [_outcome(HANBIT), lost, lost]
    show_result(screen, build_report(outcomes), outcomes, took_s=2.0)
    told = _told(screen)
    assert "1 of 3 jobs succeeded" in told
    assert "2 x failed worker_lost: gone" in told


def test_a_log_gets_a_line_now_and_then_and_one_at_the_end(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    submitted = [Submitted(ACME, ticket, f"job_{n}") for n, ticket in enumerate(held_out_tickets(ACME, 3))]
    done = [_outcome(ACME) for _ in submitted]
    with Live(screen, submitted) as live:
        live.show([])
        live.show(done[:1])
        monkeypatch.setattr(screens, "PLAIN_LINE_EVERY_S", -1.0)
        live.show(done[:2])
        monkeypatch.setattr(screens, "PLAIN_LINE_EVERY_S", 60.0)
        live.show(done)
    lines = [line.strip() for line in _told(screen).splitlines()]
    assert lines[0].startswith("first job ended")
    assert lines[1:] == ["2 of 3 ended: acme 2/3", "3 of 3 ended: acme 3/3"]
