"""ETag and If-Match (RFC 9110, section 13.1.1): a change that is made only if nobody else has made one meanwhile."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Final

from fastapi import Header

_TAG: Final = re.compile(r'(?:^|,)\s*"([^"]*)"\s*(?=,|$)')
_VERSION: Final = re.compile(r"[1-9][0-9]{0,9}")
_NONE_ACTIVE: Final = "none"

IfMatch = Annotated[
    str | None, Header(alias="If-Match", description="Act only if the adapter's ETag is still this one.")
]


def etag(active: int | None) -> str:
    """Of an adapter: which version of it is active."""
    return f'"{_NONE_ACTIVE if active is None else active}"'


def expected(if_match: str | None) -> Collection[int | None] | None:
    """The active versions with which the client would go on; None for any. A tag that is not ours fits nothing."""
    if if_match is None or if_match.strip() == "*":
        return None
    tags = _TAG.findall(if_match)
    return {None if tag == _NONE_ACTIVE else int(tag) for tag in tags if tag == _NONE_ACTIVE or _VERSION.fullmatch(tag)}
