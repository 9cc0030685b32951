"""Which prompts are known not to fit before a worker counts them."""

from __future__ import annotations

import pytest

from registry.batches import fits
from tests.registry.batches.submissions import Submissions, codes, line


def test_max_tokens_without_room_for_a_prompt_are_refused(submissions: Submissions) -> None:
    checked = submissions.check(line("a", max_tokens=511), line("b", max_tokens=512))
    assert codes(checked) == [(2, "prompt_too_long")]


@pytest.mark.parametrize("field", ["document", "prompt", "messages"])
def test_a_prompt_far_beyond_the_context_is_counted_and_refused(submissions: Submissions, field: str) -> None:
    text = "a" * 5000
    given = [{"role": "user", "content": text}] if field == "messages" else text
    (error,) = submissions.check(line("a", **{field: given})).intake.errors()
    assert error["code"] == "prompt_too_long"
    assert "512 tokens" in error["message"]


def test_a_prompt_that_might_fit_is_left_to_the_worker(submissions: Submissions) -> None:
    assert submissions.check(line("a", prompt="a" * 600)).intake.may_run


def test_counting_stops_before_it_takes_long(submissions: Submissions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "_COUNTED_CHARS", 12_000)
    checked = submissions.check(*[line(str(n), prompt="a" * 5000) for n in range(4)])
    assert codes(checked) == [(1, "prompt_too_long"), (2, "prompt_too_long")]
