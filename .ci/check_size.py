#!/usr/bin/env python3
"""Refuses source files above 250 lines and functions above 50. There is no list of exemptions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("api", "registry", "workers", "tests", "demo", "benchmarks", ".ci")
FILE_LINES, FUNCTION_LINES = 250, 50


def too_large(file: Path) -> Iterator[str]:
    """One sentence for the file and for each function in it that is over its limit."""
    source = file.read_text("utf-8")
    name = file.relative_to(ROOT)
    lines = len(source.splitlines())
    if lines > FILE_LINES:
        yield f"{name}: {lines} lines (at most {FILE_LINES}): a noun that outgrows its file becomes a folder"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines (at most {FUNCTION_LINES})"


def main() -> None:
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    problems = [problem for file in files for problem in too_large(file)]
    summary = f"{len(files)} files, {len(problems)} too large"
    sys.stdout.write("\n".join([*problems, summary]) + "\n")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
