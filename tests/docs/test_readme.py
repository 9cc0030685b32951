"""The README's commands and links exist, and its Korean reading says the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from api.cli import app
from tests.docs import pages

README = (pages.ROOT / "README.md").read_text("utf-8")
KOREAN = (pages.ROOT / "README.ko.md").read_text("utf-8")
LINK = re.compile(r"\]\(([^)\s]+)\)")
EACH_PAGE = pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.relative_to(pages.ROOT).as_posix())


def code_lines(text: str) -> list[str]:
    """Every line of fenced code, continued lines joined, and every span of inline code."""
    fenced = re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    inline = [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", pages.prose(text))]
    return [line for block in fenced for line in block.replace("\\\n", " ").splitlines()] + inline


def lorry_commands(text: str) -> Iterator[list[str]]:
    """The words after `lorry` wherever it is called."""
    for line in code_lines(text):
        for words in re.findall(r"(?:^|[\s(])lorry((?: +[^\s|;)#]+)+)", line):
            yield words.split()


def complaint(words: list[str]) -> str | None:
    """What the command line would not take, or None."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if name not in command.commands:
            return f"no command {name}"
        # A command of the table stands for one in a module of its own, which its context names.
        command = command.commands[name].make_context(name, [], resilient_parsing=True).command
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    unknown = [word for word in rest if word.startswith("--") and word.partition("=")[0] not in known]
    return f"no option {unknown[0]}" if unknown else None


@EACH_PAGE
def test_make_targets_exist(page: Path) -> None:
    makefile = (pages.ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    named = {name for line in code_lines(page.read_text("utf-8")) for name in re.findall(r"^make ([a-z]+)", line)}

    assert named <= targets


@EACH_PAGE
def test_lorry_commands_exist(page: Path) -> None:
    called = list(lorry_commands(page.read_text("utf-8")))

    assert [(" ".join(words), complaint(words)) for words in called if complaint(words)] == []


def test_the_check_of_commands_can_fail() -> None:
    assert list(lorry_commands("`KEY=$(lorry keys create acme)`")) == [["keys", "create", "acme"]]
    assert complaint(["keys", "mint"]) == "no command mint"
    assert complaint(["adapters", "push", "DIR", "--owner", "acme"]) == "no option --owner"
    assert complaint(["adapters", "push", "DIR", "--tenant", "acme"]) is None


@EACH_PAGE
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(pages.prose(page.read_text("utf-8"))):
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        if "://" not in link and not (
            file.exists() and (not anchor or anchor in pages.anchors(file.read_text("utf-8")))
        ):
            broken.append(link)

    assert broken == []


def test_every_page_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [pages.ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in seen:
            seen.add(page)
            links = LINK.findall(pages.prose(page.read_text("utf-8")))
            waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links if ".md" in link]

    assert [page.name for page in pages.PAGES if page not in seen] == []


def test_every_page_begins_with_a_sentence() -> None:
    for page in pages.PAGES:
        title, blank, first = page.read_text("utf-8").splitlines()[:3]
        assert title.startswith("# "), page
        assert blank == "", page
        assert first[:1].isalpha() or first[:1] in "`[", page


def test_the_korean_reading_has_the_same_commands() -> None:
    def commands(text: str) -> list[str]:
        return [re.sub(r"\s+#\s.*", "", line) for line in code_lines(text) if " " in line]

    assert sorted(commands(KOREAN)) == sorted(commands(README))


def test_the_korean_reading_has_the_same_parts() -> None:
    def parts(text: str) -> tuple[int, int, set[str]]:
        body = pages.prose(text)
        items = len(re.findall(r"^(?:- |\d+\. )", body, re.MULTILINE))
        return (
            len(re.findall(r"^#+ ", body, re.MULTILINE)),
            items,
            set(LINK.findall(body)) - {"README.md", "README.ko.md"},
        )

    assert parts(KOREAN) == parts(README)


def test_the_korean_reading_is_korean() -> None:
    hangul = re.findall(r"[가-힣]", pages.prose(KOREAN))

    assert len(hangul) > len(pages.prose(KOREAN)) / 3
