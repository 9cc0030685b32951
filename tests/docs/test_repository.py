"""What is committed works elsewhere: no package mirror's address, no path of the machine it was written on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.docs import pages

# Whom our files may name: this machine, the public places that set-up uses, and the projects that we link to.
HOSTS = {
    "127.0.0.1",
    "localhost",
    "testserver",
    "docs.astral.sh",
    "download.pytorch.org",
    "github.com",
}
RESERVED = (".example", ".invalid", ".test", "example.com", "example.org")
URL = re.compile(r"\b(?:https?|file)://(?:[^\s/@\"'`]*@)?([^\s/:\"'`,;)\]>{}$%]*)")


def committed() -> list[Path]:
    """Every text file that is, or would be, part of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=pages.ROOT, capture_output=True, check=True
    )
    files = [pages.ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [file for file in files if file.is_file() and b"\0" not in file.read_bytes()[:4096]]


def strange_hosts(text: str) -> set[str]:
    """Hosts of URLs that are neither ours to name nor reserved for examples. A host that is filled in later is none."""
    return {host for host in URL.findall(text) if host and host not in HOSTS and not host.endswith(RESERVED)}


def test_urls_name_only_known_hosts() -> None:
    strange = {
        (file.relative_to(pages.ROOT).as_posix(), host)
        for file in committed()
        for host in strange_hosts(file.read_text("utf-8", "replace"))
    }

    # A test may make up a host; one without a dot reaches nobody.
    assert [(name, host) for name, host in strange if "." in host or not name.startswith("tests/")] == []


def test_the_check_of_hosts_can_fail() -> None:
    scheme = "https"
    assert strange_hosts(f"--index-url {scheme}://user:word@pypi.internal/simple") == {"pypi.internal"}
    assert strange_hosts(f"{scheme}://hooks.example/x {scheme}://github.com/a {scheme}://{{host}}/") == set()


def test_no_file_names_the_place_it_was_written_in() -> None:
    place = str(pages.ROOT).encode()

    assert [str(file) for file in committed() if place in file.read_bytes()] == []


def test_locked_requirements_name_packages_only() -> None:
    lines = [
        line
        for file in (pages.ROOT / "requirements").glob("*.txt")
        for line in file.read_text("utf-8").splitlines()
        if line and not line.startswith((" ", "#"))
    ]

    assert lines
    assert [line for line in lines if line.startswith("-") or "@" in line or "/" in line] == []
