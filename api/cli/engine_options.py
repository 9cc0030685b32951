"""The engine settings as command-line options, the same for `lorry bases add` and `lorry deployments add`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from registry.deployments import EngineSettings
from registry.models.bases import RANK_CEILINGS

_PANEL = "Engine"
DEFAULT = EngineSettings()
AUTO = "auto"
"""Slots and host copies: as many as fit, counted by the worker when it starts."""

Dtype = Annotated[
    Literal["bfloat16", "float16", "float32"],
    typer.Option(help="Number format of the weights.", rich_help_panel=_PANEL),
]
MaxModelLen = Annotated[int, typer.Option(help="Context length in tokens.", rich_help_panel=_PANEL)]
MaxNumSeqs = Annotated[
    int, typer.Option(help="Jobs in the running batch; 64 without a GPU, 256 with one.", rich_help_panel=_PANEL)
]


def number_or_auto(value: str | int | None) -> int | None:
    """`auto` is None: the worker counts what fits when it starts."""
    if value is None or str(value) == AUTO:
        return None
    try:
        return int(value)
    except ValueError:
        raise typer.BadParameter(f"{value!r} is neither a number nor auto") from None


MaxLoras = Annotated[
    str,
    typer.Option(metavar="N|auto", help="Adapter slots on the device; auto: as many as fit.", rich_help_panel=_PANEL),
]
MaxLoraRank = Annotated[
    int, typer.Option(help=f"Rank ceiling: one of {', '.join(map(str, RANK_CEILINGS))}.", rich_help_panel=_PANEL)
]
MaxCpuLoras = Annotated[
    str, typer.Option(metavar="N|auto", help="Adapters kept in host memory.", rich_help_panel=_PANEL)
]
TensorParallelSize = Annotated[int, typer.Option(help="Devices that share the model.", rich_help_panel=_PANEL)]
GpuMemoryUtilization = Annotated[
    float, typer.Option(help="Share of the device's memory, above 0 and at most 1.", rich_help_panel=_PANEL)
]
Device = Annotated[str, typer.Option(help="Device index, or several with commas.", rich_help_panel=_PANEL)]
