"""Reading texts that come in some encoding: UTF-8 unless told otherwise; what is not UTF-8 is named, never guessed.

A wrong guess would be paid for in GPU time. So a file in CP949 or UTF-16 is refused with the option that reads it.
"""

from __future__ import annotations

import codecs
import io
import unicodedata
from pathlib import Path
from typing import Final, TextIO

from api.cli.exits import UnusableInput

_WIDE_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
_HEAD: Final = 4096


def codec(encoding: str | None) -> str:
    """The codec's name; a mark at the beginning of UTF-8 is not text. Raises UnusableInput for an unknown one."""
    try:
        name = codecs.lookup(encoding or "utf-8").name
        "a".encode(name)  # not every codec makes bytes of text
    except LookupError:
        raise UnusableInput(f"--encoding: {encoding!r} is not known here; try utf-8, cp949 or utf-16.") from None
    return "utf-8-sig" if name == "utf-8" else name


def open_text(binary: io.BufferedReader, name: str, encoding: str | None, newline: str) -> TextIO:
    """The text of a stream, line ends kept as `newline` says. Raises UnusableInput for what is plainly not in it."""
    chosen = codec(encoding)
    if chosen == "utf-8-sig":
        _refuse_wide(binary.peek(_HEAD)[:_HEAD], name)
    return io.TextIOWrapper(binary, chosen, newline=newline)


def read_text(file: Path, encoding: str | None) -> str:
    """A whole file. Raises UnusableInput."""
    raw = file.read_bytes()
    chosen = codec(encoding)
    if chosen == "utf-8-sig":
        _refuse_wide(raw[:_HEAD], str(file))
    try:
        return raw.decode(chosen)
    except UnicodeDecodeError as error:
        raise not_decoded(error, str(file), encoding) from None


def not_decoded(error: UnicodeDecodeError, name: str, encoding: str | None) -> UnusableInput:
    """What to do about bytes that this encoding does not have."""
    if codec(encoding) != "utf-8-sig":
        return UnusableInput(f"{name} is not in {encoding}: it has bytes there that mean nothing.")
    if _may_be_cp949(error.object):
        return UnusableInput(
            f"{name} is not UTF-8; it looks like CP949 (EUC-KR). Give --encoding cp949, which converts it."
        )
    return UnusableInput(f"{name} is not UTF-8. Save it as UTF-8, or name what it is in: --encoding NAME.")


def named(file: Path, folder: Path, encoding: str | None) -> str:
    """The id for a file: its path within the folder, in NFC, without the suffix. Raises UnusableInput.

    macOS writes names decomposed (NFD); the same word typed elsewhere is NFC, and ids have to compare equal.
    """
    name = file.relative_to(folder).with_suffix("").as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        # Names unpacked from an old archive are bytes in another encoding, which Python holds as surrogates.
        raw = name.encode("utf-8", "surrogateescape")
        try:
            name = raw.decode(codec(encoding))
        except UnicodeDecodeError:
            raise UnusableInput(
                f"A file's name in {folder} is not UTF-8 ({raw!r}): rename it, or say what it is with --encoding cp949."
            ) from None
    return unicodedata.normalize("NFC", name)


def _refuse_wide(head: bytes, name: str) -> None:
    """UTF-16 has a mark at its beginning, or NULs beside every ASCII character."""
    if head.startswith(_WIDE_MARKS) or b"\0" in head:
        raise UnusableInput(f"{name} is not UTF-8; it looks like UTF-16. Give --encoding utf-16, which converts it.")


def _may_be_cp949(raw: bytes) -> bool:
    try:
        # Incremental: a block may end in the middle of a character.
        codecs.getincrementaldecoder("cp949")().decode(raw)
    except UnicodeDecodeError:
        return False
    return True
