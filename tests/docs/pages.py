"""Reading the repository's own pages: their tables, links and commands."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

_CODE_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def read(name: str) -> str:
    """A page of docs/, by its name without `.md`."""
    return (DOCS / f"{name}.md").read_text("utf-8")


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below this heading, without its head and rule; backticks around a cell removed."""
    lines = text.split(f"# {heading}\n", 1)[1].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split(" | ")])
    return [[re.sub(r"^`([^`]*)`$", r"\1", cell) for cell in row] for row in rows]


def code_blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return [body for kind, body in _CODE_BLOCK.findall(text) if kind == language]


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return _CODE_BLOCK.sub("", text)


def anchors(text: str) -> set[str]:
    """What a link may name after `#`, as GitHub makes it of headings."""
    headings = _HEADING.findall(prose(text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
