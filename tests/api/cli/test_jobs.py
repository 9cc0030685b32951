"""`lorry jobs`: the operator sees everything of a job but its texts."""

from __future__ import annotations

import json

from registry.ids import to_wire
from tests.api.cli.conftest import Lorry
from tests.world import World

SECRET = "기밀: the customer's own words"


def test_no_text_of_a_tenant_is_ever_shown(lorry: Lorry, world: World) -> None:
    job = world.job("acme", document=SECRET, custom_id="their-own-id", metadata={"note": "their note"})
    shown = [
        lorry("jobs", "show", to_wire("job", job)),
        lorry("jobs", "show", to_wire("job", job), "--json"),
        lorry("jobs", "list"),
        lorry("jobs", "list", "--json"),
    ]
    for answer in shown:
        assert answer.status == 0
        assert to_wire("job", job) in answer.out
        for text in (SECRET, "their-own-id", "their note"):
            assert text not in answer.out + answer.err


def test_a_list_is_newest_first_and_filtered(lorry: Lorry, world: World) -> None:
    first, second, foreign = world.job("acme"), world.job("acme"), world.job("globex")
    world.pick(1)
    mine = json.loads(lorry("jobs", "list", "--tenant", "acme", "--json").out)
    assert [row["id"] for row in mine] == [to_wire("job", second), to_wire("job", first)]
    dispatched = json.loads(lorry("jobs", "list", "--status", "dispatched", "--json").out)
    assert {row["id"] for row in dispatched} <= {to_wire("job", job) for job in (first, second, foreign)}
    assert len(dispatched) == 1
    assert len(json.loads(lorry("jobs", "list", "--limit", "2", "--json").out)) == 2


def test_a_job_that_is_not_there_is_not_found(lorry: Lorry, world: World) -> None:
    for wrong in ("job_x", "job_" + "0" * 32):
        answer = lorry("jobs", "show", wrong)
        assert answer.status == 1
        assert "[not_found]" in answer.err


def test_a_state_that_does_not_exist_is_a_usage_error(lorry: Lorry) -> None:
    assert lorry("jobs", "list", "--status", "sleeping").status == 2


def test_explain_says_what_a_job_waits_for_and_who_could_run_it(lorry: Lorry, world: World) -> None:
    job = to_wire("job", world.job("acme", document=SECRET))
    told = json.loads(lorry("jobs", "explain", job, "--json").out)
    assert told["waiting_for"].startswith("its turn")
    assert told["workers"].startswith("no worker of deployment Tiny")
    world.pick()
    told = json.loads(lorry("jobs", "explain", job, "--json").out)
    assert told["charged_tokens"] > 0
    assert SECRET not in lorry("jobs", "explain", job).out
    assert "[not_found]" in lorry("jobs", "explain", "job_" + "0" * 32).err
