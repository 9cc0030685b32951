"""Cutting long documents: nothing is lost or broken, every part fits, sentences stay whole where they can."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from registry.long_documents import CUT_MARK, Span, split, truncate


def byte_spans(text: str) -> list[Span]:
    """A token a byte, as the tiny base's tokenizer has it: a Hangul syllable is three tokens of one span."""
    return [(at, at + 1) for at, char in enumerate(text) for _ in char.encode()]


def word_spans(text: str) -> list[Span]:
    """A token for up to four characters."""
    return [(at, min(at + 4, len(text))) for at in range(0, len(text), 4)]


def parts(text: str, size: int, overlap: int = 0) -> list[str]:
    return [text[start:end] for start, end in split(text, byte_spans(text), size, overlap)]


TEXTS = st.text(
    st.sampled_from(
        list("가나다각뷁했요 .!?。…\n\tab1\u0301\u200d👩👧🏽") + list(unicodedata.normalize("NFD", "한글값"))
    ),
    max_size=200,
)


@settings(max_examples=300, deadline=None)
@example(text="했 했다. 했다", size=8, overlap=1, by_byte=True)
@given(text=TEXTS, size=st.integers(8, 40), overlap=st.integers(0, 3), by_byte=st.booleans())
def test_parts_cover_the_document_in_order_and_each_fits(text: str, size: int, overlap: int, by_byte: bool) -> None:
    spans = byte_spans(text) if by_byte else word_spans(text)
    pieces = split(text, spans, size, overlap)
    covered = 0
    for start, end in pieces:
        assert start <= covered < end
        assert sum(start <= begin < end for begin, _ in spans) <= size
        assert sum(start <= begin < covered for begin, _ in spans) <= overlap
        covered = end
    assert covered == len(text)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, keep=st.integers(0, 40))
def test_a_truncated_text_keeps_its_ends_whole_and_says_what_is_gone(text: str, keep: int) -> None:
    spans = byte_spans(text)
    cut = truncate(text, spans, keep)
    if len(spans) <= keep:
        assert cut == (type(cut))(text, 0)
        return
    head, tail = cut.text.split(CUT_MARK) if "[…]" not in text else (text, "")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len((head + tail).encode()) + cut.dropped_tokens == len(spans)
    assert len(spans) - cut.dropped_tokens <= keep
    assert not tail or not unicodedata.combining(tail[0])


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("프린터가 고장났다. 다시 켰습니다. 그래도 안 된다.", "프린터가 고장났다. "),
        ("프린터가 고장났다.다시 켰습니다.그래도 안 된다.", "프린터가 고장났다."),
        ("정말요? 네! 그렇습니다, 아주 그렇습니다 그리고", "정말요? 네! "),
        ("プリンタが壊れた。再起動した。まだ駄目だ。", "プリンタが壊れた。"),
        ("It costs 3.14 dollars. The rest of it is longer.", "It costs 3.14 dollars. "),
        ("He said “Stop!” Then all of it went on and on.", "He said “Stop!” "),
        ("प्रिंटर खराब है। फिर चालू किया।", "प्रिंटर खराब है। "),
        ("one line\nanother line that is longer", "one line\n"),
    ],
)
def test_a_part_ends_where_a_sentence_ends(text: str, first: str) -> None:
    assert parts(text, len(first.encode()) + 6)[0] == first


def test_without_sentences_parts_end_at_blanks_and_without_those_between_characters() -> None:
    assert parts("하나 둘 셋 넷 다섯", 11) == ["하나 둘 ", "셋 넷 ", "다섯"]
    assert parts("가나다라마", 7) == ["가나", "다라", "마"]
    accented = "e\u0301" * 4
    assert all(not unicodedata.combining(part[0]) for part in parts(accented, 5))


def test_neighbours_share_whole_sentences_within_the_overlap() -> None:
    text = "One one one. Two. Three three three. Four. Five five five."
    assert parts(text, 24, 6) == ["One one one. Two. ", "Two. Three three three. ", "Four. Five five five."]


def test_what_is_written_as_one_stays_together_when_the_middle_goes() -> None:
    family = "👩\u200d👧"
    text = family + "x" * 30 + family
    assert truncate(text, byte_spans(text), 24).text == f"{family}x{CUT_MARK}x{family}"
    assert truncate(text, byte_spans(text), 14).text == CUT_MARK
