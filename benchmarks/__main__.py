"""Runs all benchmarks, one process each, and makes docs/benchmarks anew: `python -m benchmarks [--quick] [NAME …]`."""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import charts, pages
from benchmarks.figures import ROOT
from registry.settings import child_environment

NAMES = (
    "batching",
    "starvation",
    "swaps",
    "overhead",
    "unmerged",
    "fairness",
    "simulation",
    "submit",
    "dispatch",
    "overhead_pipeline",
    "polling",
)
DOCS = ROOT / "docs" / "benchmarks"


def main() -> int:
    """0 when every program ran; whether a figure meets its target is for the page to say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="short runs; figures are too few to be quoted")
    parser.add_argument("--out", type=Path, default=DOCS, help="where pages, charts and results go")
    given = parser.parse_args()
    unknown = set(given.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    failed = [name for name in given.names or NAMES if not run(name, given.out, quick=given.quick)]
    write_pages(given.out)
    print(f"failed: {', '.join(failed)}" if failed else "all ran", flush=True)
    return 1 if failed else 0


def run(name: str, out: Path, *, quick: bool) -> bool:
    """One benchmark in a process of its own."""
    print(f"== {name}", flush=True)
    begun = time.monotonic()
    argv = [sys.executable, "-m", f"benchmarks.{name}", "--json", str(out / f"{name}.json"), *(["--quick"] * quick)]
    done = subprocess.run(argv, cwd=ROOT, env=child_environment(PYTHONPATH=str(ROOT)), check=False)
    print(f"== {name}: {time.monotonic() - begun:.0f} s, status {done.returncode}", flush=True)
    return done.returncode == 0


def write_pages(out: Path) -> None:
    """A page and charts for every result there is, and the front page."""
    results = {}
    for file in sorted(out.glob("*.json")):
        result = results[file.stem] = json.loads(file.read_text("utf-8"))
        drawn = charts.draw(file.stem, result, out)
        (out / f"{file.stem}.md").write_text(pages.page(file.stem, about(file.stem), result, drawn), "utf-8")
    if results:
        (out / "README.md").write_text(pages.index(results), "utf-8")


def about(name: str) -> str:
    """What a benchmark says of itself, without importing it."""
    tree = ast.parse((ROOT / "benchmarks" / f"{name}.py").read_text("utf-8"))
    return ast.get_docstring(tree) or ""


if __name__ == "__main__":
    sys.exit(main())
