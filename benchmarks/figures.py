"""What a benchmark leaves: figures, the machine and commit they were measured on, and the raw values behind them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def write(json_path: Path, figures: Mapping[str, float | None], raw: Any) -> None:
    """Write `{"figures", "machine", "commit", "raw"}`, and print the figures. A figure not taken is null."""
    document = {"figures": dict(figures), "machine": machine(), "commit": commit(), "raw": raw}
    json_path.parent.mkdir(parents=True, exist_ok=True)
    json_path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    for name, value in figures.items():
        print(f"{name:32} {'not taken' if value is None else f'{value:.4g}'}")


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of ours over theirs, pair by pair: both arms of a pair ran in the same minute of a noisy machine."""
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def commit() -> str:
    """The commit's hash, with `+` when files were changed since; `unknown` outside a repository."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text("utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
