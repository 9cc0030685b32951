"""Charts as PNG files: bars, lines or points, as a benchmark describes them in its raw values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SIZE_INCHES = (8.0, 3.6)


def draw(benchmark: str, result: Mapping[str, Any], folder: Path) -> list[str]:
    """Every chart of a result; the names of the files."""
    raw = result["raw"]
    wanted = raw.get("charts", ()) if isinstance(raw, dict) else ()
    return [_draw_one(benchmark, chart, folder) for chart in wanted]


def _draw_one(benchmark: str, chart: Mapping[str, Any], folder: Path) -> str:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=SIZE_INCHES, layout="constrained")
    if chart["kind"] == "bars":
        bars = axes.bar(chart["labels"], chart["values"], color="#2f6f9f")
        axes.bar_label(bars, fmt="%.3g", padding=2, fontsize=8)
        axes.tick_params(axis="x", labelrotation=20 if len(chart["labels"]) > 5 else 0)
    else:
        for label, series in chart["series"].items():
            axes.plot(series["x"], series["y"], marker="o", label=label)
        axes.set_xscale(chart.get("x_scale", "linear"))
        axes.set_yscale(chart.get("y_scale", "linear"))
        axes.set_xlabel(chart.get("x_label", ""))
        axes.legend(fontsize=8)
        if any(isinstance(x, str) for series in chart["series"].values() for x in series["x"]):
            axes.tick_params(axis="x", labelrotation=20)
    axes.set_title(chart["title"], fontsize=10)
    axes.set_ylabel(chart["unit"])
    axes.spines[["top", "right"]].set_visible(False)
    name = f"{benchmark}-{re.sub(r'[^a-z0-9]+', '-', chart['title'].lower()).strip('-')}.png"
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / name, dpi=110)
    pyplot.close(figure)
    return name
