"""Results on their way into a file: cut, gone on with, never doubled, never half under their own name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from api.cli import downloads
from api.cli.downloads import Download, PartFile, Reached
from api.cli.exits import UnusableInput
from tests.api.cli.tenant import Tenant
from tests.registry.batches.batch_rig import Batches
from tests.relay import Relay
from tests.world import World

COUNT = 900


@pytest.fixture
def batch_id(world: World) -> str:
    """A batch that has ended, a line in three failed."""
    batches = Batches(world)
    made = batches.make(COUNT)
    batches.run(made, succeed=[n for n in range(1, COUNT + 1) if n % 3], fail=range(3, COUNT + 1, 3))
    batches.dispatch()
    return f"batch_{made.hex}"


def cutting(monkeypatch: pytest.MonkeyPatch, relay: Relay, *at: int, mend: bool) -> None:
    """Cut the way when this many lines have been taken."""
    take = Download._take

    def taken(self: Download, raw: bytes) -> None:
        take(self, raw)
        if self.reached.lines in at:
            relay.cut()
            if mend:
                relay.mend()

    monkeypatch.setattr(Download, "_take", taken)


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv"])
def test_a_download_that_is_cut_goes_on_by_itself_without_a_line_lost_or_doubled(
    tenant: Tenant, batch_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tenant("batches", "results", batch_id, "--out", tmp_path / f"whole-{name}")
    relay = Relay(tenant.http.base_url.port or 0)
    tenant.by_way_of(relay.port)
    cutting(monkeypatch, relay, 100, 700, mend=True)
    answer = tenant("submit", "--batch", batch_id, "--out", tmp_path / name)
    relay.cut()
    assert answer.status == 1, answer.err
    assert answer.err.count("Trying again") == 2
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    if name == "out.jsonl":
        assert (tmp_path / name).read_bytes() == tenant.results(batch_id)


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv"])
def test_a_command_that_gave_up_is_gone_on_with_by_another(
    tenant: Tenant, batch_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tenant("batches", "results", batch_id, "--out", tmp_path / f"whole-{name}")
    relay = Relay(tenant.http.base_url.port or 0)
    tenant.by_way_of(relay.port)
    cutting(monkeypatch, relay, 300, mend=False)
    lost = tenant("submit", "--batch", batch_id, "--out", tmp_path / name, "--retry-for", "0")
    assert lost.status == 4
    assert f"lorry submit --batch {batch_id} --wait --out {tmp_path / name}" in lost.err
    assert not (tmp_path / name).exists()
    note = json.loads((tmp_path / f"{name}.part.json").read_text())
    assert note["batch"] == batch_id
    assert 300 <= note["lines"] < COUNT
    # What a process that was killed has written after its last note is not counted.
    with (tmp_path / f"{name}.part").open("ab") as file:
        file.write(b'{"torn')
    relay.mend()
    asked: list[str] = []
    place = Download._place

    def asking(self: Download) -> dict[str, str]:
        asked.append(self.reached.cursor or "")
        return place(self)

    monkeypatch.setattr(Download, "_place", asking)
    went_on = tenant("batches", "results", batch_id, "--out", tmp_path / name)
    relay.cut()
    assert went_on.status == 0, went_on.err
    assert asked == [note["cursor"]]
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    assert sorted(file.name for file in tmp_path.glob(f"{name}*")) == [name]


def test_results_of_another_batch_are_not_written_over(tenant: Tenant, batch_id: str, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.part.json").write_text(json.dumps({"batch": "batch_other", "bytes": 0}))
    for command in (("submit", "--batch", batch_id), ("submit", "-"), ("batches", "results", batch_id)):
        answer = tenant(*command, "--out", tmp_path / "out.jsonl", stdin=b'{"document":"a"}')
        assert answer.status == 2
        assert "go on with --batch batch_other" in answer.err
    assert len(tenant.http.get("/batches").json()["data"]) == 1


def test_results_so_far_are_kept_apart_until_the_batch_has_ended(tenant: Tenant, world: World, tmp_path: Path) -> None:
    batches = Batches(world)
    made = batches.make(3)
    batches.run(made, succeed=[1])
    wire = f"batch_{made.hex}"
    answer = tenant("batches", "results", wire, "--out", tmp_path / "out.jsonl")
    assert answer.status == 0
    assert "1 lines so far" in answer.err
    assert not (tmp_path / "out.jsonl").exists()
    batches.run(made, succeed=[2, 3])
    batches.dispatch()
    assert tenant("batches", "results", wire, "--out", tmp_path / "out.jsonl").status == 0
    assert (tmp_path / "out.jsonl").read_bytes() == tenant.results(wire)


def test_a_file_has_one_writer_at_a_time(tmp_path: Path) -> None:
    first = PartFile(tmp_path / "out.jsonl", "batch_1")
    with pytest.raises(UnusableInput, match="another `lorry`"):
        PartFile(tmp_path / "out.jsonl", "batch_1")
    first.close()
    PartFile(tmp_path / "out.jsonl", "batch_1").close()


def test_an_interrupt_between_writing_and_counting_does_not_double_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = PartFile(tmp_path / "out.jsonl", "batch_1")
    file.write(b"one\n", Reached("i1", 1))
    file._file.write(b"two\n")
    file.close()
    again = PartFile(tmp_path / "out.jsonl", "batch_1")
    assert again.reached == Reached("i1", 1)
    again.write(b"two\n", Reached("i2", 2))
    again.finish()
    assert (tmp_path / "out.jsonl").read_bytes() == b"one\ntwo\n"


def test_a_note_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl.part.json").write_text("[]")
    with pytest.raises(UnusableInput, match="not a note"):
        downloads.check_target(str(tmp_path / "out.jsonl"), None)
