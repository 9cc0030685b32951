"""`lorry plan`: how many adapters and jobs a device carries, before anything is bought or started."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli import engine_options as engine
from api.cli import output
from api.cli.connection import registry_session
from registry import base_models, model_shape, sizing
from registry.deployments import EngineSettings
from registry.errors import InvalidField
from registry.sizing import CostModel, ModelShape, Sizing, Wish

_UNITS = {"MIB": sizing.MIB, "GIB": sizing.GIB, "MB": 10**6, "GB": 10**9}
BANDWIDTH_GB_S = 1000.0


def plan(
    memory: Annotated[str, typer.Option(help="Memory of one device, such as 80GiB.")],
    base: Annotated[str | None, typer.Option(help="A registered base model.")] = None,
    base_path: Annotated[Path | None, typer.Option(help="Or a model's folder; nothing else is needed.")] = None,
    adapters: Annotated[int, typer.Option(min=0, help="Adapters that will be in use.")] = 0,
    rank: Annotated[int, typer.Option(help="Rank ceiling (max_lora_rank).")] = 16,
    jobs_per_hour: Annotated[float, typer.Option(min=0, help="Jobs that come in.")] = 0.0,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Of a usual job.")] = 512,
    output_tokens: Annotated[int, typer.Option(min=1, help="Of a usual job.")] = 128,
    bandwidth: Annotated[
        float, typer.Option(min=1, help="The device's memory, GB/s, for the estimate.")
    ] = BANDWIDTH_GB_S,
    calibration: Annotated[Path | None, typer.Option(help="A simulation.json measured on this kind of device.")] = None,
    dtype: engine.Dtype = "bfloat16",
    max_model_len: engine.MaxModelLen = engine.DEFAULT.max_model_len,
    max_num_seqs: engine.MaxNumSeqs = engine.DEFAULT.max_num_seqs,
    gpu_memory_utilization: engine.GpuMemoryUtilization = engine.DEFAULT.gpu_memory_utilization,
    as_json: output.AsJson = False,
) -> None:
    """Show slots, KV cache, memory of adapters against whole models, and workers for a load. Starts nothing."""
    EngineSettings(
        max_lora_rank=rank,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        gpu_memory_utilization=gpu_memory_utilization,
    ).check()
    model = model_shape.read(_folder(base, base_path), dtype)
    wish = Wish(byte_count(memory), gpu_memory_utilization, max_num_seqs, max_model_len, rank, adapters)
    found = sizing.size(model, wish)
    if calibration is not None:
        cost, source = measured(calibration), f"measured, {calibration.name}"
    else:
        context = prompt_tokens + output_tokens / 2
        cost = sizing.memory_bound(model, bandwidth * 1e9, rank, context)
        source = f"estimated: a step reads the weights once at {bandwidth:g} GB/s; measure before you buy"
    load: dict[str, Any] = {}
    if jobs_per_hour and found.slots:
        kv_jobs = found.kv_left_tokens // (prompt_tokens + output_tokens)
        live = max(1, min(max_num_seqs, kv_jobs))
        needed = sizing.workers_needed(
            cost, jobs_per_hour, output_tokens=output_tokens, live=live, slots=found.slots, adapters=adapters
        )
        load = {"workers": needed, "live_jobs_each": live, "cost_model": source}
    output.record({**table(model, found), **load}, as_json=as_json) if as_json else _print(model, found, load)


def table(model: ModelShape, found: Sizing) -> dict[str, Any]:
    """The plan as fields: bytes and counts."""
    return {
        "slots": found.slots,
        "slots_that_fit": found.fitting,
        "kv_left_bytes": found.kv_left_bytes,
        "kv_left_tokens": found.kv_left_tokens,
        "adapter_bytes": found.slot_bytes,
        "full_model_bytes": model.weight_bytes,
        "never_swaps": found.never_swaps,
        "arithmetic": found.lines(),
    }


def _print(model: ModelShape, found: Sizing, load: dict[str, Any]) -> None:
    for line in found.lines():
        typer.echo(line)
    if not found.slots:
        typer.echo("Not even one adapter fits: take a larger device, a shorter max_model_len or a lower rank.")
        raise typer.Exit(1)
    typer.echo(f"KV cache: {sizing.gib(found.kv_left_bytes)}, {found.kv_left_tokens} tokens\n")
    tenants = found.adapters or found.slots
    full, shared = tenants * model.weight_bytes, model.weight_bytes + found.slots_bytes
    output.print_table(
        [
            {"": "extra memory per tenant", "full model per tenant": sizing.gib(model.weight_bytes),
             "LoRA hot swap": f"{found.slot_bytes / sizing.MIB:.1f} MiB"},
            {"": f"{tenants} tenants on devices", "full model per tenant": sizing.gib(full),
             "LoRA hot swap": sizing.gib(shared)},
            {"": "tenants share a batch", "full model per tenant": "no", "LoRA hot swap": "yes (unmerged)"},
        ]
    )  # fmt: skip
    if found.adapters and not found.never_swaps:
        typer.echo(f"\n{found.adapters} adapters take turns in {found.slots} slots: they will swap.")
    if load:
        typer.echo(
            f"\nWorkers: {load['workers']}, with up to {load['live_jobs_each']} live jobs each ({load['cost_model']})"
        )


def measured(file: Path) -> CostModel:
    """The cost model of a calibration. Raises InvalidField for a file that has none."""
    try:
        found = json.loads(file.read_text("utf-8"))["raw"]["cost"]
        return CostModel(float(found["base_s"]), float(found["row_s"]), float(found["swap_s"]))
    except (OSError, ValueError, LookupError, TypeError):
        raise InvalidField(
            f"{file} has no cost model: `make bench` writes simulation.json.", param="calibration"
        ) from None


def byte_count(text: str) -> int:
    """`80GiB`, `80GB` or `512MiB`. Raises InvalidField."""
    number, unit = text[:-3].strip(), text[-3:].upper()
    if unit not in _UNITS:
        number, unit = text[:-2].strip(), text[-2:].upper()
    try:
        found = int(float(number) * _UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        raise InvalidField("memory is a number with GiB, MiB, GB or MB, such as 80GiB.", param="memory") from None
    if found <= 0:
        raise InvalidField("memory is more than nothing.", param="memory")
    return found


def _folder(base: str | None, base_path: Path | None) -> Path:
    if (base is None) == (base_path is None):
        raise InvalidField("Give exactly one of --base and --base-path.", param="base")
    if base_path is not None:
        return base_path
    assert base is not None
    with registry_session() as session:
        return Path(base_models.get(session, base).path)
