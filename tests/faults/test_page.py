"""docs/reliability.md says what docs/reliability.json says."""

from __future__ import annotations

import json

from tests.faults import page


def test_the_page_is_made_of_the_figures() -> None:
    result = json.loads((page.DOCS / "reliability.json").read_text("utf-8"))

    assert (page.DOCS / "reliability.md").read_text("utf-8") == page.page(result)
    assert set(page.PROMISES) <= set(result["figures"])


def test_a_broken_promise_is_seen() -> None:
    good = dict.fromkeys(page.PROMISES, 0.0)

    assert page.kept(good)
    assert not page.kept(good | {"lost": 1})
    assert not page.kept(good | {"worker_recovery_p100_s": 45.1})
