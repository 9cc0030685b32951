"""`lorry submit` as a program of its own: API, dispatcher and worker are real, only the engine has no model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from api.cli.exits import Exit
from registry.settings import Settings, child_environment
from tests.api.live import LiveApi
from tests.e2e.crew import Crew, eventually
from tests.world import World

COUNT = 300
BAD = 17


class Shop:
    """A tenant's shell."""

    def __init__(self, url: str, key: str, folder: Path) -> None:
        self.folder = folder
        self.http = httpx2.Client(base_url=f"{url}/v1", headers={"authorization": f"Bearer {key}"}, timeout=30)
        self._environment = child_environment(LORRY_BASE_URL=url, LORRY_API_KEY=key)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", "from api.cli import app; app()", *arguments],
            cwd=self.folder,
            env=self._environment | {"PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write_tickets(self) -> None:
        lines = [
            json.dumps({"custom_id": f"문의-{n}", "document": f"문의 {n}: 환불\u2028요청"}, ensure_ascii=False)
            for n in range(1, COUNT + 1)
        ]
        lines[BAD - 1] = '{"document": '
        (self.folder / "docs.jsonl").write_text("\n".join(lines), "utf-8")


@pytest.fixture
def shop(settings: Settings, world: World, tmp_path: Path) -> Iterator[Shop]:
    world.adapter()
    with LiveApi(settings) as live:
        made = Shop(live.url, world.key(), tmp_path)
        made.write_tickets()
        yield made
        made.http.close()


SUBMIT = ("submit", "docs.jsonl", "--model", "tickets", "--max-tokens", "4", "--on-bad-line", "skip")


def test_three_hundred_tickets_come_back_in_input_order_byte_for_byte(crew: Crew, shop: Shop) -> None:
    crew.dispatcher()
    crew.worker()
    process = shop.start(*SUBMIT, "--wait", "--out", "results.jsonl")
    out, err = process.communicate(timeout=90)
    assert process.returncode == Exit.SOME_FAILED, err  # the bad line
    batch_id = out.strip()
    raw = (shop.folder / "results.jsonl").read_bytes()
    assert raw == shop.http.get(f"/batches/{batch_id}/results").content
    results = [json.loads(line) for line in raw.split(b"\n")[:-1]]
    assert [line["line"] for line in results] == list(range(1, COUNT + 1))
    assert [line["custom_id"] for line in results if line["line"] != BAD] == [
        f"문의-{n}" for n in range(1, COUNT + 1) if n != BAD
    ]
    assert results[BAD - 1]["error"]["code"] == "invalid_json_line"
    assert all(line["output"]["text"] for line in results if line["line"] != BAD)
    assert f"{COUNT - 1} of {COUNT} done, 1 failed" in err
    assert "1 swap." in err


def test_ctrl_c_leaves_the_batch_running_and_another_command_goes_on(crew: Crew, shop: Shop) -> None:
    process = shop.start(*SUBMIT, "--wait", "--out", "results.jsonl")
    assert process.stderr is not None
    for line in process.stderr:
        if " done, " in line:
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    batch_id = out.strip()
    assert process.returncode == Exit.INTERRUPTED
    assert err.splitlines()[-1].endswith(
        f"The batch goes on. Go on with: lorry submit --batch {batch_id} --wait --out results.jsonl"
    )
    assert shop.http.get(f"/batches/{batch_id}").json()["status"] == "in_progress"
    crew.dispatcher()
    crew.worker()
    eventually(lambda: shop.http.get(f"/batches/{batch_id}").json()["status"] == "completed", within_s=60)
    again = shop.start("submit", "--batch", batch_id, "--wait", "--out", "results.jsonl")
    again.communicate(timeout=60)
    assert (shop.folder / "results.jsonl").read_bytes().count(b"\n") == COUNT
