"""The dispatcher's side of divided documents: who waited for parts goes on, or ends as a part of it ended."""

from __future__ import annotations

from registry import backlog, transitions
from workers.leader import Leader


def advance(leader: Leader) -> None:
    """One look at the jobs that wait for parts: there are never many more of them than workers hold jobs."""
    with leader.transaction() as session:
        if not backlog.in_parts(session):
            return
    for step in (transitions.end_with_parts, transitions.sweep, transitions.release):
        with leader.transaction() as session:
            step(session)
