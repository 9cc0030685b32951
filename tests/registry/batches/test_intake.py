"""Which lines are taken, which are refused, and for what."""

from __future__ import annotations

import random
import unicodedata

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.batch_lines import BAD_KINDS, BadKind, good_line, mixed
from registry.batches import intake
from registry.batches.lines import CHAT, COMPLETIONS
from tests.registry.batches.submissions import Submissions, chat_line, codes, line

STORABLE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)


@pytest.mark.parametrize("kind", BAD_KINDS, ids=lambda kind: kind.name)
def test_a_bad_line_is_refused_with_its_number_and_the_others_are_taken(
    submissions: Submissions, kind: BadKind
) -> None:
    checked = submissions.check(line("line-1"), b"", kind.make("line-3"), line("line-4"), block_bytes=65536)
    assert codes(checked) == [(3, kind.code)]
    assert not checked.intake.may_run
    assert (checked.intake.total, checked.spool.lines) == (3, 2)


def test_many_bad_lines_of_all_kinds_keep_their_numbers(submissions: Submissions) -> None:
    made, bad = mixed(1000, 0.1, seed=7, size_bytes=100)
    checked = submissions.check(*made, block_bytes=100_000)
    kept = [(refusal.line, refusal.code) for refusal in checked.intake.refusals.first]
    assert kept == [(number, kind.code) for number, kind in bad.items()]
    assert codes(checked) == kept[:100]
    assert checked.intake.error_total == len(bad) == 100


def test_only_a_hundred_errors_are_listed_but_all_are_counted(submissions: Submissions) -> None:
    checked = submissions.check(*[b"{" for _ in range(250)])
    assert [error["line"] for error in checked.intake.errors()] == list(range(1, 101))
    assert checked.intake.error_total == 250


def test_no_error_repeats_a_byte_of_a_line(submissions: Submissions) -> None:
    canary = "CANARY4711"
    lines = [kind.make(f"{canary}-{n}") for n, kind in enumerate(BAD_KINDS)] + [
        line(canary, **{canary: 1}),
        line(f"{canary}-m", model=canary),
        line(f"{canary}-d", document=f"{canary}\0"),
        canary.encode(),
    ]
    checked = submissions.check(*lines, block_bytes=65536)
    assert checked.intake.error_total >= len(BAD_KINDS)
    assert canary not in str(checked.intake.errors())


def test_a_duplicate_names_both_lines(submissions: Submissions) -> None:
    checked = submissions.check(line("a"), line("b"), b"", line("a"), line("long" * 100), line("long" * 100))
    assert codes(checked) == [(4, "duplicate_custom_id"), (6, "duplicate_custom_id")]
    assert "line 1 " in checked.intake.errors()[0]["message"]
    assert "line 5 " in checked.intake.errors()[1]["message"]


def test_composed_and_decomposed_forms_are_two_ids(submissions: Submissions) -> None:
    ids = [unicodedata.normalize(form, "한글é") for form in ("NFC", "NFD")]
    checked = submissions.check(*[line(custom_id) for custom_id in ids])
    assert checked.intake.may_run
    assert [spooled.custom_id for spooled in checked.spool] == ids


def test_bytes_that_are_not_utf8_are_told_with_their_place(submissions: Submissions) -> None:
    checked = submissions.check(line("a"), b'{"custom_id": "\xff"}')
    assert "at byte 15" in checked.intake.errors()[0]["message"]


def test_a_mark_before_the_first_line_is_fine(submissions: Submissions) -> None:
    assert submissions.check(b"\xef\xbb\xbf" + line("a")).intake.may_run


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(STORABLE.filter(lambda text: not text.isspace()), min_size=1, max_size=5, unique=True))
def test_texts_and_ids_keep_every_byte(submissions: Submissions, texts: list[str]) -> None:
    lines = [good_line(text, text) for text in texts] + [line(f"{text}+", document=text) for text in texts]
    checked = submissions.check(*lines, block_bytes=7)
    assert checked.intake.may_run, checked.intake.errors()
    assert [spooled.custom_id for spooled in checked.spool] == texts + [f"{text}+" for text in texts]
    assert [orjson.loads(spooled.body)["document"] for spooled in checked.spool] == texts * 2


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=60), seed=st.integers())
def test_no_bytes_stop_the_intake(submissions: Submissions, raw: bytes, seed: int) -> None:
    good = bytearray(line("a"))
    place = random.Random(seed).randrange(len(good))
    good[place : place + 3] = raw
    checked = submissions.check(bytes(good), raw, line("z"))
    assert checked.intake.total == checked.spool.lines + checked.intake.refusals.total


def test_an_input_without_lines_is_empty(submissions: Submissions) -> None:
    assert codes(submissions.check(b"")) == [(None, "empty_file")]
    assert codes(submissions.check(b"\n \n\t\r\n")) == [(None, "empty_file")]


def test_more_lines_than_a_batch_takes_are_refused(submissions: Submissions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "MAX_TASKS", 3)
    assert submissions.check(*[line(str(n)) for n in range(3)]).intake.may_run
    over = submissions.check(*[line(str(n)) for n in range(9)])
    assert codes(over) == [(None, "too_many_tasks")]
    assert over.spool.lines == 3


def test_skipping_leaves_bad_lines_out_up_to_one_in_ten(submissions: Submissions) -> None:
    good = [line(str(n)) for n in range(18)]
    assert submissions.check(*good, b"{", b"{", on_bad_line="skip").intake.may_run
    over = submissions.check(*good[:17], b"{", b"{", on_bad_line="skip")
    assert not over.intake.may_run
    assert codes(over) == [(None, "too_many_bad_lines"), (18, "invalid_json_line"), (19, "invalid_json_line")]
    assert over.intake.error_total == 3


def test_lines_of_an_uploaded_file_are_openais(submissions: Submissions) -> None:
    checked = submissions.check(chat_line("a", n=1, stream=False, max_completion_tokens=5), endpoint=CHAT)
    assert checked.intake.may_run, checked.intake.errors()
    assert b'"max_tokens":5' in next(iter(checked.spool)).body


@pytest.mark.parametrize(
    ("bad", "code", "param"),
    [
        (chat_line().replace(b"/v1/chat/completions", b"/v1/embeddings"), "url_mismatch", "url"),
        (chat_line().replace(b"POST", b"GET"), "invalid_value", "method"),
        (chat_line().replace(b'"body": {', b'"extra": 1, "body": {'), "invalid_value", "extra"),
        (b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}', "invalid_json_line", "body"),
        (chat_line(n=2), "invalid_value", "n"),
        (chat_line(tools=[{"type": "function"}]), "invalid_value", "tools"),
        (chat_line(model="gpt-4o"), "model_not_found", "model"),
        (chat_line(messages=[]), "invalid_value", "messages"),
        (chat_line(max_tokens=600), "prompt_too_long", "max_tokens"),
        (line(), "invalid_value", "model"),
    ],
)
def test_a_bad_line_of_an_uploaded_file_names_its_field(
    submissions: Submissions, bad: bytes, code: str, param: str
) -> None:
    (error,) = submissions.check(bad, endpoint=CHAT).intake.errors()
    assert (error["line"], error["code"], error["param"]) == (1, code, param), error


def test_a_chat_line_is_no_line_of_a_completions_batch(submissions: Submissions) -> None:
    assert codes(submissions.check(chat_line(), endpoint=COMPLETIONS)) == [(1, "url_mismatch")]


def test_a_line_names_its_own_base_or_is_refused(submissions: Submissions) -> None:
    checked = submissions.check(line("a", base_model="Tiny"), line("b", base_model="Other"))
    assert codes(checked) == [(2, "base_model_mismatch")]
