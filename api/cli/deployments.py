"""`lorry deployments`: further deployments of a base (rank classes), and the list of all."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli import engine_options as engine
from api.cli import output
from api.cli.connection import registry_session
from registry import deployments
from registry.deployments import EngineSettings
from registry.settings import get_settings

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Add and list rank classes of a base.")


@app.command("add")
def add(
    name: Annotated[str, typer.Argument(help="The deployment's name; its queue is infer.NAME.")],
    base: Annotated[str, typer.Option(help="The base model it serves.")],
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
    """Serve a base a second time, for adapters of a higher rank."""
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
    with registry_session() as session:
        deployments.add(session, name, base, settings, is_default=False, kv_cache_gib=get_settings().kv_cache_gib)
    typer.echo(f"Added deployment {name} of {base}.")


@app.command("list")
def list_(as_json: output.AsJson = False) -> None:
    """List the deployments."""
    with registry_session() as session:
        found = [deployments.get(session, name) for name in deployments.names(session)]
    rows = [
        {
            "name": row.name,
            "base": row.base_model,
            "default": row.is_default,
            "device": row.device,
            **{field: getattr(row, field) for field in EngineSettings.__slots__ if field != "device"},
            "max_loras": "auto" if row.max_loras is None else row.max_loras,
            "max_cpu_loras": "auto" if row.max_cpu_loras is None else row.max_cpu_loras,
        }
        for row in found
    ]
    output.records(
        rows, as_json=as_json, empty="No deployments yet: `lorry bases add` makes a base with its first one."
    )
