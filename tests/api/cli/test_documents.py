"""What a tenant has, as lines of a batch: encodings, forms, names."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from api.cli.documents import Reading, items
from api.cli.exits import UnusableInput

TEXT = "배송이 늦었습니다. 환불해 주세요."
TICKETS = Reading(model="tickets")


def fields(source: Path, reading: Reading = TICKETS) -> list[dict[str, Any]]:
    return [json.loads(item.raw) for item in items(str(source), reading)]


def refusal(source: Path, reading: Reading = TICKETS) -> str:
    with pytest.raises(UnusableInput) as refused:
        list(items(str(source), reading))
    return refused.value.message


def test_a_line_that_lacks_nothing_goes_out_byte_for_byte(tmp_path: Path) -> None:
    raw = '{ "custom_id":"a" , "model":"x@2","document":"\\u2028 줄\u2028바꿈", "custom_id":"a"}\r\n'.encode()
    (tmp_path / "in.jsonl").write_bytes(raw)
    assert [item.raw for item in items(str(tmp_path / "in.jsonl"), TICKETS)] == [raw]


def test_what_a_line_lacks_is_put_in_front_and_what_it_says_stays(tmp_path: Path) -> None:
    lines = '{"document":"a"}\n{}\n\n{"model":"x","custom_id":"c","document":"b","max_tokens":3}'
    (tmp_path / "in.jsonl").write_text(lines)
    found = [item.raw for item in items(str(tmp_path / "in.jsonl"), Reading(model="tickets", max_tokens=9))]
    assert json.loads(found[0]) == {"model": "tickets", "max_tokens": 9, "custom_id": "line-1", "document": "a"}
    assert json.loads(found[1]) == {"model": "tickets", "max_tokens": 9, "custom_id": "line-2"}
    assert found[2] == b"\n"
    assert found[3] == b'{"model":"x","custom_id":"c","document":"b","max_tokens":3}'


def test_broken_and_endless_lines_are_left_for_the_server_to_name(tmp_path: Path) -> None:
    raw = b'{"document": \n[1]\n{"document":"' + b"x" * 3_000_000 + b'"}\n{"document":"a"}\n'
    (tmp_path / "in.jsonl").write_bytes(raw)
    found = list(items(str(tmp_path / "in.jsonl"), Reading()))
    assert b"".join(item.raw for item in found[:-1]) == raw[: -len(b'{"document":"a"}\n')]
    assert max(len(item.raw) for item in found) <= 1024 * 1024
    assert sum(item.begins for item in found) == 4
    assert (found[-1].place, found[-1].custom_id) == ("line 4", "line-4")


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv", "in.txt"])
@pytest.mark.parametrize(
    ("encoding", "read_with"),
    [("utf-8-sig", None), ("cp949", "cp949"), ("euc-kr", "euc_kr"), ("utf-16", "utf-16"), ("utf-16-le", "utf-16-le")],
)
def test_every_encoding_is_read_by_its_name(tmp_path: Path, name: str, encoding: str, read_with: str | None) -> None:
    body = {"in.jsonl": json.dumps({"document": TEXT}, ensure_ascii=False), "in.csv": f"document\r\n{TEXT}\r\n"}
    (tmp_path / name).write_bytes(body.get(name, TEXT).encode(encoding))
    assert [line["document"] for line in fields(tmp_path / name, Reading(model="m", encoding=read_with))] == [TEXT]


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv", "in.txt"])
@pytest.mark.parametrize(
    ("encoding", "word", "option"),
    [
        ("cp949", "CP949", "--encoding cp949"),
        ("euc-kr", "CP949", "--encoding cp949"),
        ("utf-16", "UTF-16", "--encoding utf-16"),
        ("utf-16-le", "UTF-16", "--encoding utf-16"),
    ],
)
def test_what_is_not_utf8_is_refused_by_name(tmp_path: Path, name: str, encoding: str, word: str, option: str) -> None:
    body = {"in.jsonl": json.dumps({"document": TEXT}, ensure_ascii=False), "in.csv": f"document\n{TEXT}\n"}
    (tmp_path / name).write_bytes(body.get(name, TEXT).encode(encoding))
    told = refusal(tmp_path / name)
    assert word in told
    assert option in told
    assert str(tmp_path / name) in told
    assert TEXT not in told


def test_bytes_of_no_encoding_and_encodings_that_are_not_there_are_named(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"abc \xff\xff\xff")
    assert "--encoding NAME" in refusal(tmp_path / "in.txt")
    assert "not in cp949" in refusal(tmp_path / "in.txt", Reading(model="m", encoding="cp949"))
    for unknown in ("hangul", "rot13"):
        assert "is not known here" in refusal(tmp_path / "in.txt", Reading(model="m", encoding=unknown))


def test_a_folder_gives_its_texts_by_name_and_decomposed_names_become_nfc(tmp_path: Path) -> None:
    (tmp_path / "둘").mkdir()
    for name in (unicodedata.normalize("NFD", "나무.txt"), "가지.TXT", "둘/셋.txt", "._가지.txt", "note.md"):
        (tmp_path / name).write_text(f"in {unicodedata.normalize('NFC', name)}")
    found = fields(tmp_path)
    assert [line["custom_id"] for line in found] == ["가지", "나무", "둘/셋"]
    assert found[1] == {"custom_id": "나무", "document": "in 나무.txt", "model": "tickets"}


def test_a_file_name_that_is_not_utf8_is_refused_or_read_with_its_encoding(tmp_path: Path) -> None:
    (tmp_path / "환불.txt".encode("cp949").decode("utf-8", "surrogateescape")).write_bytes(TEXT.encode("cp949"))
    assert "--encoding cp949" in refusal(tmp_path)
    (line,) = fields(tmp_path, Reading(model="m", encoding="cp949"))
    assert (line["custom_id"], line["document"]) == ("환불", TEXT)


def test_a_table_gives_one_column_and_keeps_line_breaks_in_cells(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes('﻿번호,내용,기타\r\n7,"첫 줄\r\n""둘째"" 줄",x\r\n\r\n8,b,\r\n'.encode())
    found = fields(tmp_path / "in.csv", Reading(model="m", column="내용", id_column="번호"))
    assert [(line["custom_id"], line["document"]) for line in found] == [("7", '첫 줄\r\n"둘째" 줄'), ("8", "b")]
    (tmp_path / "in.tsv").write_text("a\tdocument\n1\tx\n2\ty\n")
    assert [line["custom_id"] for line in fields(tmp_path / "in.tsv")] == ["row-1", "row-2"]


@pytest.mark.parametrize(
    ("body", "reading", "told"),
    [
        ("a,b\n1,2\n", TICKETS, "no column 'document'; --column takes one of: a, b"),
        ("a,a\n1,2\n", Reading(model="m", column="a"), "more than one column 'a'"),
        ("a,document\n1,2\n3\n", TICKETS, "row 2 (line 3) has 1 cells, the header 2"),
        ('document\n"open\n', TICKETS, "is not CSV"),
        ("", TICKETS, "no column"),
        ("document\nx\n", Reading(), "--model"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, body: str, reading: Reading, told: str
) -> None:
    (tmp_path / "in.csv").write_text(body)
    assert told in refusal(tmp_path / "in.csv", reading)


def test_inputs_of_no_known_form_are_refused(tmp_path: Path) -> None:
    assert "no .txt file" in refusal(tmp_path)
    (tmp_path / "in.xlsx").write_bytes(b"PK")
    assert "--format" in refusal(tmp_path / "in.xlsx")
    (tmp_path / "big.txt").write_bytes(b"x" * (1024 * 1024 + 1))
    assert "larger than 1 MiB" in refusal(tmp_path / "big.txt")
    with pytest.raises(FileNotFoundError):
        list(items(str(tmp_path / "none.jsonl"), TICKETS))
