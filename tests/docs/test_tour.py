"""The README's tour works as printed, against a stack that `lorry up` started; only the engine has no model."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from httpx2 import Client, TransportError

from registry.embedded.launch import Launch
from registry.embedded.ports import free_port
from registry.settings import child_environment
from tests.docs import pages
from tests.tiny_base import make_tiny_base

README = (pages.ROOT / "README.md").read_text("utf-8")
DEADLINE_S = 120.0
PRINTED_API = "http://127.0.0.1:8080"
HIDDEN, MIDDLE, KEYS, LAYERS, VOCABULARY = 576, 1536, 192, 30, 49152
_MODULES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KEYS, HIDDEN),
    "self_attn.v_proj": (KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (MIDDLE, HIDDEN),
    "mlp.up_proj": (MIDDLE, HIDDEN),
    "mlp.down_proj": (HIDDEN, MIDDLE),
}


def make_hollow_base(folder: Path) -> None:
    """The demo's base as the registry sees it: shapes of SmolLM2-135M, weights that are a hole in the file."""
    make_tiny_base(folder)
    shapes = {"model.embed_tokens": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        shapes |= {f"model.layers.{layer}.{module}": shape for module, shape in _MODULES.items()}
    header, end = {}, 0
    for name, (out, into) in shapes.items():
        begin, end = end, end + 2 * out * into
        header[f"{name}.weight"] = {"dtype": "BF16", "shape": [out, into], "data_offsets": [begin, end]}
    raw = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A data directory and ports of its own, and no hub cache: what a newcomer has."""
    ports = {f"LORRY_{name}_PORT": str(free_port()) for name in ("API", "FLOWER", "PG", "VALKEY")}
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return child_environment(
        **ports,
        PATH=programs,
        HF_HOME=str(tmp_path / "hub"),
        LORRY_DATA_DIR=str(tmp_path / "data"),
        LORRY_ENGINE="fake",
        LORRY_FAKE_STEP_MS="10",
    )


@pytest.fixture
def api(environment: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """The address of a running stack's API."""
    url = f"http://127.0.0.1:{environment['LORRY_API_PORT']}"
    launch = Launch("up", (sys.executable, "-c", "from api.cli import app; app()", "up"))
    with (tmp_path / "up.log").open("wb") as log:
        stack = subprocess.Popen(
            launch.argv, cwd=pages.ROOT, env=environment, stdout=log, stderr=log, **launch.popen_options()
        )
    try:
        wait_for(f"{url}/readyz", stack, tmp_path / "up.log")
        yield url
    finally:
        stack.terminate()
        stack.wait(DEADLINE_S)


def wait_for(url: str, stack: subprocess.Popen[bytes], log: Path) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    with Client(timeout=5) as client:
        while True:
            assert stack.poll() is None, log.read_text()
            assert time.monotonic() < deadline_s, log.read_text()
            try:
                if client.get(url).status_code == 200:
                    return
            except TransportError:
                pass
            time.sleep(0.1)


@pytest.mark.slow
def test_the_tour_works_as_printed(api: str, environment: dict[str, str], tmp_path: Path) -> None:
    make_hollow_base(tmp_path / "data" / "SmolLM2-135M-Instruct")
    tour = README.split("\n## Tour\n")[1].split("\n## ")[0]
    script = "\n".join(pages.code_blocks(tour, "sh"))
    assert PRINTED_API in script

    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script.replace(PRINTED_API, api)],
        cwd=pages.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "urn:lorry:error" not in ran.stdout
    for expected in ('"tickets@1"', '"status": "succeeded"', '"version":2', '"status":"cancelled"', "umbrella"):
        assert expected in ran.stdout
