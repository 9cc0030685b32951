"""The list shape that every list of ours has, as OpenAI's clients page through it."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from pydantic import BaseModel

Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """Items, the ids of the first and the last, and whether more follow: ask again with `after` = `last_id`."""

    object: Literal["list"] = "list"
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool

    @classmethod
    def of(cls, items: list[Item], ids: list[str], *, has_more: bool = False) -> Page[Item]:
        """A page of these items, whose ids are `ids`."""
        return cls(data=items, first_id=ids[0] if ids else None, last_id=ids[-1] if ids else None, has_more=has_more)
