"""`rank_pattern` and `alpha_pattern`: values for modules whose name ends in a key, as PEFT and vLLM match them.

vLLM evaluates these keys as regular expressions inside the worker, for every module, so a hostile key could hold up
every tenant's engine. Only keys that cannot backtrack far are let through: names, or patterns with at most two choices.
"""

from __future__ import annotations

import re
from typing import Final, Generic, TypeVar

Number = TypeVar("Number", int, float)

MAX_KEYS: Final = 400  # vLLM's regular expression cache holds 500; beyond it every match compiles anew
MAX_FREE_KEYS: Final = 16
MAX_KEY: Final = 128
_NAME: Final = re.compile(r"[\w.\-]+", re.ASCII)
_GROUP: Final = r"\((?:\?:)?[\w\-]+(?:\|[\w\-]+)*\)"
_BOUNDED: Final = re.compile(rf"\^?(?:[\w\-]|\\?\.|\\d|(?<![)*+^])[*+]|{_GROUP})+\$?", re.ASCII)
_CHOICE: Final = re.compile(r"[*+(]")


class PatternTable(Generic[Number]):
    """Key -> value in the config's order; `unsupported` lists keys that are refused and never matched."""

    def __init__(self, table: dict[str, Number]) -> None:
        free = [key for key in table if not _NAME.fullmatch(key)]
        self.unsupported = [key for key in free if not _is_bounded(key)] + free[MAX_FREE_KEYS:]
        self.unsupported += [key for key in table if len(key) > MAX_KEY and key not in self.unsupported]
        sound = {key: value for key, value in table.items() if key not in self.unsupported}
        self.values: list[Number] = list(sound.values())
        self._rows: list[tuple[re.Pattern[str], Number]] = [
            (re.compile(rf"(.*\.)?({key})$"), value) for key, value in sound.items()
        ]

    def find(self, module: str) -> Number | None:
        """The value of the first key that the module's name ends in, else None."""
        return next((value for pattern, value in self._rows if pattern.match(module)), None)


def _is_bounded(key: str) -> bool:
    return len(key) <= MAX_KEY and bool(_BOUNDED.fullmatch(key)) and len(_CHOICE.findall(key)) <= 2
