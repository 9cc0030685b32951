"""Submitting 50,000 lines over HTTP, checked and committed, beside a bare COPY of the same rows, already encoded.

    python -m benchmarks.submit --json FILE [--quick]

`submit_over_copy` is the ratio of rows per second, the median of pairs whose arms take turns. The COPY goes into the
same tables with the same indexes on one connection: what PostgreSQL alone can take. `api_rss_growth_mib` is by how much
the API's memory grew over all runs. `bad_lines_right` is the share of bad lines told by number and code.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.batch_lines import document, good_line, mixed, openai_lines
from benchmarks.submit_stack import Stack

SEED = 20_260


def main() -> None:
    arguments = _arguments()
    lines, pairs = (5_000, 3) if arguments.quick else (50_000, 7)
    with tempfile.TemporaryDirectory(prefix="lorry-submit-") as folder, Stack(Path(folder)) as stack:
        stack.submit(b"\n".join(good_line(f"warm-{n}", document(n)) for n in range(500)))
        stack.clear()
        at_rest = stack.api_rss_mib()
        stack.forget_highest_rss()
        raw = _race(stack, lines, pairs)
        raw["bad_lines"] = _bad_lines(stack, lines)
        highest = stack.api_rss_mib(highest=True)
        raw["api_rss_mib"] = {"at_rest": at_rest, "highest": highest}
    figures.write(
        arguments.json,
        {
            "submit_over_copy": figures.paired_ratio(raw["submit_rows_s"], raw["copy_rows_s"]),
            "file_submit_over_copy": figures.paired_ratio(raw["file_rows_s"], raw["copy_rows_s"]),
            "submit_rows_s": figures.median(raw["submit_rows_s"]),
            "api_rss_growth_mib": highest - at_rest,
            "bad_lines_right": raw["bad_lines"]["right"] / raw["bad_lines"]["expected"],
        },
        raw,
    )


def _race(stack: Stack, lines: int, pairs: int) -> dict[str, Any]:
    """Rows per second of the three arms, which take turns."""
    body = b"\n".join(good_line(f"line-{n}", document(n)) for n in range(1, lines + 1))
    upload = b"\n".join(openai_lines(lines))
    stack.submit(body)
    encoded = stack.encoded_rows()
    stack.clear()
    raw: dict[str, Any] = {"lines": lines, "body_mib": len(body) / 2**20}
    arms: dict[str, Callable[[], object]] = {
        "submit_rows_s": lambda: stack.submit(body),
        "copy_rows_s": lambda: stack.copy(encoded),
        "file_rows_s": lambda: stack.submit_file(upload),
    }
    for _ in range(pairs):
        for name, run in arms.items():
            begun = time.perf_counter()
            run()
            raw.setdefault(name, []).append(lines / (time.perf_counter() - begun))
            assert stack.stored_jobs() == lines
            stack.clear()
        print("  ".join(f"{name} {raw[name][-1]:8.0f}" for name in arms), flush=True)
    return raw


def _bad_lines(stack: Stack, lines: int) -> dict[str, int]:
    """One line in a hundred is bad: refused as a whole with the first hundred listed, then run without them."""
    made, bad = mixed(lines, 0.01, SEED)
    body = b"\n".join(made)
    expected = [(number, kind.code) for number, kind in bad.items()]
    listed = [(error["line"], error["code"]) for error in stack.submit(body)["errors"]["data"]]
    right = len(set(expected[:100]) & set(listed))
    assert stack.stored_jobs() == 0
    batch = stack.submit(body, "?on_bad_line=skip")
    right += len(set(expected) & stack.stored_bad_lines())
    assert (batch["request_counts"]["total"], stack.stored_jobs()) == (lines, lines - len(bad))
    return {"bad": len(bad), "expected": len(expected[:100]) + len(expected), "right": right}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.submit", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True, help="where to write the figures")
    parser.add_argument("--quick", action="store_true", help="a tenth of the lines, three pairs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
