"""`lorry bases`: register a base model together with its default deployment, and list them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli import engine_options as engine
from api.cli import hub, output
from api.cli.connection import registry_session
from registry import base_models, deployments
from registry.deployments import EngineSettings
from registry.errors import InvalidField
from registry.settings import get_settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Register and list base models.")


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The name tenants use, such as Llama-3.1-8B.")],
    path: Annotated[Path | None, typer.Option(help="A folder as save_pretrained leaves it.")] = None,
    hub_id: Annotated[str | None, typer.Option("--hub", metavar="ID", help="A model of the hub instead.")] = None,
    revision: Annotated[str | None, typer.Option(help="The hub model's revision.")] = None,
    alias: Annotated[
        list[str] | None, typer.Option(help="Another name adapters were trained under; repeat it.")
    ] = None,
    template: Annotated[Path | None, typer.Option(help='Chat messages with "{document}", as JSON.')] = None,
    dtype: engine.Dtype = "bfloat16",
    max_model_len: engine.MaxModelLen = engine.DEFAULT.max_model_len,
    max_num_seqs: engine.MaxNumSeqs = engine.DEFAULT.max_num_seqs,
    max_loras: engine.MaxLoras = engine.AUTO,
    max_lora_rank: engine.MaxLoraRank = engine.DEFAULT.max_lora_rank,
    max_cpu_loras: engine.MaxCpuLoras = engine.AUTO,
    tensor_parallel_size: engine.TensorParallelSize = engine.DEFAULT.tensor_parallel_size,
    gpu_memory_utilization: engine.GpuMemoryUtilization = engine.DEFAULT.gpu_memory_utilization,
    device: engine.Device = engine.DEFAULT.device,
) -> None:
    """Register a base model and its default deployment, both of this name."""
    settings = EngineSettings(
        dtype=dtype,
        max_model_len=max_model_len,
        max_num_seqs=max_num_seqs,
        max_loras=engine.number_or_auto(max_loras),
        max_lora_rank=max_lora_rank,
        max_cpu_loras=engine.number_or_auto(max_cpu_loras),
        tensor_parallel_size=tensor_parallel_size,
        gpu_memory_utilization=gpu_memory_utilization,
        device=device,
    )
    settings.check()
    messages = read_template(template) if template else base_models.DEFAULT_TEMPLATE
    folder, found = _locate(path, hub_id, revision)
    names = dict.fromkeys([*([hub_id] if hub_id and hub_id != name else []), *(alias or [])])
    with registry_session() as session:
        base_models.add(session, name, folder, revision=found, aliases=names, template=messages)
        deployments.add(session, name, name, settings, is_default=True, kv_cache_gib=get_settings().kv_cache_gib)
    typer.echo(f"Registered base {name} and its deployment {name}.")
    output.hint(f"A running `lorry up` starts its worker by itself; elsewhere: lorry worker --deployment {name}")


@app.command("list")
def list_(as_json: output.AsJson = False) -> None:
    """List the base models."""
    with registry_session() as session:
        rows = [
            {
                "name": base.name,
                "aliases": sorted(base_models.names_of(session, base.name) - {base.name}),
                "path": base.path,
                "revision": base.revision,
                "created_at": base.created_at,
            }
            for base in base_models.all_bases(session)
        ]
    output.records(rows, as_json=as_json, empty="No base models yet: `lorry bases add NAME --path DIR` registers one.")


def read_template(file: Path) -> list[Any]:
    """The messages in a JSON file, checked when the base is added. Raises InvalidField."""
    try:
        messages = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise InvalidField(f"{file} is not JSON in UTF-8.", param="template") from error
    if not isinstance(messages, list):
        raise InvalidField(f"{file} is not a list of messages.", param="template")
    return messages


def _locate(path: Path | None, hub_id: str | None, revision: str | None) -> tuple[Path, str | None]:
    """The model's folder and revision, from whichever of the two the operator gave."""
    if (path is None) == (hub_id is None):
        raise typer.BadParameter("give exactly one of --path and --hub")
    if path is not None:
        return path, revision
    assert hub_id is not None
    return hub.find(hub_id, revision)
