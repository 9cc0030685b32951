"""Prompts that are too long, made to fit: counted with a tokenizer of one token a byte and a template of 58 tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from registry.base_models import DEFAULT_TEMPLATE
from registry.errors import PromptTooLong
from registry.long_documents import CUT_MARK
from registry.prompts import PromptFormat
from registry.transitions import Claimed
from tests.workers.held_jobs import held_job
from workers.fitting import MAX_LEVELS, Fitting

LIMIT = 256
SENTENCES = [f"{number}번 프린터가 또 걸렸습니다. " for number in range(40)]
DOCUMENT = "".join(SENTENCES)


@pytest.fixture
def prompt_format(tiny_base_dir: Path) -> PromptFormat:
    return PromptFormat(tiny_base_dir, DEFAULT_TEMPLATE)


@pytest.fixture
def fitting(prompt_format: PromptFormat) -> Fitting:
    return Fitting(prompt_format, LIMIT)


def body(on_overflow: str = "error", document: str = DOCUMENT, max_tokens: int = 20, **more: Any) -> dict[str, Any]:
    sampling = {"max_tokens": max_tokens, "temperature": 0.0, "top_p": 1.0, "stop": [], "seed": None}
    return {"document": document, "on_overflow": on_overflow, "sampling": sampling | more.pop("sampling", {}), **more}


def claimed(**fields: Any) -> Claimed:
    return replace(held_job().claimed, body=body("map_reduce", **fields))


def test_a_document_that_fits_is_left_alone_whatever_was_asked(fitting: Fitting) -> None:
    short = SENTENCES[0]
    for strategy in ("error", "truncate", "map_reduce"):
        assert fitting.fitted(body(strategy, short)).overflow is None
    assert fitting.division(claimed(document=short)) is None


def test_a_truncated_prompt_fills_the_context_and_says_how_much_is_gone(
    fitting: Fitting, prompt_format: PromptFormat
) -> None:
    fitted = fitting.fitted(body("truncate"))
    assert LIMIT - 20 - 8 <= len(fitted.token_ids) <= LIMIT - 20
    around = len(prompt_format.token_ids(body(document=CUT_MARK)))
    kept = len(fitted.token_ids) - around
    assert fitted.overflow == {"strategy": "truncate", "dropped_tokens": len(DOCUMENT.encode()) - kept}


def test_without_max_tokens_a_long_document_leaves_a_quarter_for_the_output(fitting: Fitting) -> None:
    fitted = fitting.fitted(body("truncate", max_tokens=200, sampling={"may_lower": True}))
    assert LIMIT // 4 <= fitted.max_tokens <= LIMIT // 4 + 8


def test_parts_fit_hold_whole_sentences_and_cover_the_document(fitting: Fitting, prompt_format: PromptFormat) -> None:
    division = fitting.division(claimed(sampling={"seed": 7}))
    assert division is not None
    assert (division.sampling["max_tokens"], division.sampling["seed"]) == (20, 7)
    assert all(len(prompt_format.token_ids(body(document=part))) + 20 <= LIMIT for part in division.documents)
    assert all(part.rstrip().endswith("다.") for part in division.documents)
    assert all(any(sentence in part for part in division.documents) for sentence in SENTENCES)


def test_a_document_of_blanks_is_one_part(fitting: Fitting) -> None:
    division = fitting.division(claimed(document=" " * 2000))
    assert division is not None
    assert division.documents == [" "]


def test_what_the_parts_gave_runs_as_the_document_or_is_divided_again(fitting: Fitting) -> None:
    reduced = fitting.fitted(body("map_reduce", reduced="짧은 요약."))
    assert reduced.token_ids == fitting.fitted(body(document="짧은 요약.")).token_ids
    again = fitting.division(claimed(reduced=DOCUMENT[:200]))
    assert again is not None
    assert again.documents[0] in DOCUMENT[:200]
    spent = replace(claimed(reduced=DOCUMENT), overflow={"levels": MAX_LEVELS})
    with pytest.raises(PromptTooLong, match="rounds"):
        fitting.division(spent)


def test_a_context_without_room_for_any_document_is_said_at_once(fitting: Fitting) -> None:
    with pytest.raises(PromptTooLong, match="leave"):
        fitting.fitted(body("truncate", max_tokens=190))
    with pytest.raises(PromptTooLong, match="leave"):
        fitting.division(claimed(max_tokens=190))
    with pytest.raises(PromptTooLong, match="together more"):
        fitting.fitted(body("error"))
