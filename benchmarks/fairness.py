"""Tenants against each other, with an engine that answers by the clock: shares of a crowd, and a small one's wait.

    python -m benchmarks.fairness --json FILE [--quick]

`jain`: ten tenants whose jobs have different lengths, all with more queued than can be served; Jain's index of the
tokens served to each while all were backlogged. `small_tenant_p95_ratio`: 20 jobs of about 20 ms of a tenant beside one
with 1000 times as many queued, the 95th percentile from submission to finish, over the same in an idle stack; median of
paired ratios.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from sqlalchemy import text

from benchmarks import figures, floods, model, options
from benchmarks.children import until
from benchmarks.floods import Flood
from benchmarks.ratios import jain, paired, percentile
from benchmarks.stack import Stack
from registry.deployments import EngineSettings

BASE = "fake"
ENGINE = EngineSettings(max_model_len=512)
STEP_MS = 1.25
"""The engine without a model writes 16 tokens a job: 20 ms."""
SMALL, TIMES_AS_MANY = 20, 1000
TENANTS = 10

_SERVED = text("""
SELECT tenant_id, sum(prompt_tokens + output_tokens) AS tokens FROM jobs
WHERE tenant_id LIKE 'crowd-%' AND state = 'succeeded' AND finished_at < to_timestamp(:until_s) GROUP BY 1
""")
_FIRST_EMPTY = text("""
SELECT min(last_s) FROM (SELECT extract(epoch FROM max(dispatched_at))::float8 AS last_s
    FROM jobs WHERE tenant_id LIKE 'crowd-%' GROUP BY tenant_id) AS lasts
""")
_CANCEL_QUEUED = text("""
UPDATE jobs SET state = 'cancelled', finished_at = now() WHERE tenant_id = :tenant AND state = 'queued'
""")
_LEFT = text("SELECT count(*) FROM jobs WHERE tenant_id = :tenant AND state = 'queued'")


def crowd(stack: Stack, jobs: int) -> dict[str, int]:
    """Tokens served to each of ten tenants while all had jobs queued; the longer a tenant's jobs, the fewer it has."""
    lengths = [4 + 8 * (number % 5) for number in range(TENANTS)]
    crowded = [Flood(f"crowd-{n}", jobs * 20 // (16 + words), words) for n, words in enumerate(lengths)]
    ids, _ = floods.submit(stack, BASE, *crowded)
    stack.wait(ids)
    with stack.db.transaction() as session:
        until_s = session.scalar(_FIRST_EMPTY)
        return {row.tenant_id: int(row.tokens) for row in session.execute(_SERVED, {"until_s": until_s})}


def p95_s(stack: Stack, tenant: str) -> float:
    """The small tenant's 20 jobs, submitted together: the 95th percentile of submission to finish."""
    ids, _ = floods.submit(stack, BASE, Flood(tenant, SMALL))
    stack.wait(ids, every_s=0.02)
    waits = [(one.finished - one.created).total_seconds() for one in stack.times(ids) if one.finished]
    return percentile(waits, 0.95)


def beside_a_flood(stack: Stack, pairs: int) -> tuple[list[float], list[float]]:
    """The small tenant's p95 alone, then beside the big one. Raises RuntimeError if the flood ended too early."""
    p95_s(stack, "small")
    alone = [p95_s(stack, "small") for _ in range(pairs)]
    flood, _ = floods.submit(stack, BASE, Flood("big", SMALL * TIMES_AS_MANY))
    until(lambda: any(one.finished for one in stack.times(flood[:4000:50])), every_s=0.1)
    beside = [p95_s(stack, "small") for _ in range(pairs)]
    with stack.db.transaction() as session:
        if not session.scalar(_LEFT, {"tenant": "big"}):
            raise RuntimeError("the big tenant had nothing queued any more: the ratio says nothing")
        session.execute(_CANCEL_QUEUED, {"tenant": "big"})
    stack.wait(flood)
    return alone, beside


def main(argv: list[str] | None = None) -> None:
    """Both questions, on one stack."""
    given = options.parse("fairness", argv)
    with tempfile.TemporaryDirectory(prefix="lorry-bench-") as folder, Stack(Path(folder)) as stack:
        stack.base(BASE, model.random_model(), ENGINE)
        stack.worker(BASE, LORRY_ENGINE="fake", LORRY_FAKE_STEP_MS=str(STEP_MS))
        stack.ready(BASE)
        alone, beside = beside_a_flood(stack, given.pairs)
        served = crowd(stack, 300 if given.quick else 2000)
    ratio = median(paired(beside, alone))
    print(f"alone {alone}\nbeside {beside}\nserved {served}", flush=True)
    table = {
        "title": f"{SMALL} jobs of a small tenant, p95 from submission to finish",
        "columns": ["", "p95, ms (median)"],
        "rows": [
            ["alone", f"{median(alone) * 1000:.0f}"],
            [f"beside a tenant with {TIMES_AS_MANY} times as many", f"{median(beside) * 1000:.0f}"],
        ],
    }
    chart = {
        "kind": "bars",
        "title": "Tokens served while all were backlogged",
        "unit": "tokens",
        "labels": list(served),
        "values": list(served.values()),
    }
    figures.write(
        given.json,
        {"jain": jain(list(served.values())), "small_tenant_p95_ratio": ratio},
        {"tables": [table], "charts": [chart], "alone_s": alone, "beside_s": beside},
    )


if __name__ == "__main__":
    main()
