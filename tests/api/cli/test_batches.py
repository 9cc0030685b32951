"""`lorry batches`, and `lorry jobs show` of a tenant: their own only, over HTTP."""

from __future__ import annotations

import json

from registry.ids import to_wire
from tests.api.cli.tenant import Tenant
from tests.registry.batches.batch_rig import Batches
from tests.world import World


def test_batches_are_listed_and_shown_but_not_other_tenants(tenant: Tenant, world: World) -> None:
    batches = Batches(world)
    mine, foreign = (f"batch_{batches.make(3, owner).hex}" for owner in ("acme", "globex"))
    (listed,) = json.loads(tenant("batches", "list", "--json").out)
    assert listed["id"] == mine
    assert mine in tenant("batches", "list").out
    shown = tenant("batches", "show", mine)
    assert "counts.queued" in shown.out
    assert json.loads(tenant("batches", "show", mine, "--json").out)["request_counts"]["total"] == 3
    hidden = tenant("batches", "show", foreign)
    assert (hidden.status, hidden.out) == (3, "")
    assert "[not_found]" in hidden.err


def test_a_batch_is_cancelled_once_and_run_again(tenant: Tenant, world: World) -> None:
    batches = Batches(world)
    batch_id = batches.make(3)
    wire = f"batch_{batch_id.hex}"
    assert tenant("batches", "cancel", wire).out == f"{wire} is cancelling.\n"
    early = tenant("batches", "rerun", wire)
    assert (early.status, "[not_ended]" in early.err) == (3, True)
    batches.dispatch()
    late = tenant("batches", "cancel", wire)
    assert (late.status, "[batch_ended]" in late.err) == (3, True)
    again = tenant("batches", "rerun", wire)
    assert again.status == 0
    assert f"3 lines. Go on with: lorry submit --batch {again.out.strip()} --wait" in again.err
    assert json.loads(tenant("batches", "show", again.out.strip(), "--json").out)["lorry"]["rerun_of"] == wire


def test_with_a_key_a_job_is_ones_own_and_has_its_texts(tenant: Tenant, world: World) -> None:
    mine, foreign = world.job("acme", custom_id="mine"), world.job("globex")
    shown = json.loads(tenant("jobs", "show", to_wire("job", mine), "--json").out)
    assert (shown["custom_id"], shown["status"]) == ("mine", "queued")
    assert tenant("jobs", "show", to_wire("job", foreign)).status == 3
