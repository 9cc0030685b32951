"""The examples of docs/api.md and docs/moving-from-openai.md work as printed, against a running stack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conformance.conftest import Stack
from tests.docs import pages
from tests.tiny_base import make_adapter_dir

FAILING_CURL = 'curl() { command curl --silent --show-error --fail-with-body "$@"; }'


def run(argv: list[str], script: str, folder: Path) -> str:
    """What the script prints. AssertionError with all of it when it fails."""
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        argv, input=script, cwd=folder, env=os.environ | {"PATH": search}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_examples_of_the_api_page_work(stack: Stack, tmp_path: Path) -> None:
    stack.world.adapter("reader")
    folder = make_adapter_dir(tmp_path / "adapter", stack.world.base_dir, 8, 77)
    variables, *examples = pages.code_blocks(pages.read("api"), "sh")
    filled = variables.replace("http://127.0.0.1:8080", stack.url).replace("lorry_...", stack.world.key("reader"))
    assert stack.url in filled
    printed = run(["bash", "-euo", "pipefail"], "\n".join([FAILING_CURL, filled, *examples]), folder)
    assert printed.count('"custom_id":"t-2"') == 1
    assert '"object":"usage"' in printed


def test_the_moved_program_works(stack: Stack, tmp_path: Path) -> None:
    stack.world.adapter("mover")
    _, program = pages.code_blocks(pages.read("moving-from-openai"), "python")
    filled = program.replace("http://127.0.0.1:8080", stack.url).replace("lorry_...", stack.world.key("mover"))
    assert stack.url in filled
    printed = run([sys.executable, "-"], filled, tmp_path)
    assert [line.split()[0] for line in printed.splitlines()] == ["t-1", "t-2"]
