"""What Lorry's pipeline costs without a model: from rows through dispatcher, broker, Celery, claim and settle.

    python -m benchmarks.overhead_pipeline --json FILE [--quick]

Lorry's engine answers at once; its jobs enter as rows, and a run ends with the last settle. Beside it, in turns, a
Celery task that does nothing, with the same concurrency, events, settings and broker, fed by a publisher of its own
while it runs. `pipeline_over_celery_noop` is the median paired ratio of jobs a second. CPU times are of Lorry's runs.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks import figures, floods, model, options
from benchmarks.arms import celery_noop
from benchmarks.children import Child
from benchmarks.floods import Flood
from benchmarks.ratios import median_ratio, turns
from benchmarks.stack import Stack
from registry.deployments import EngineSettings
from registry.queues import make_celery, queue
from workers.gpu import held_capacity

BASE = "fake"
ENGINE = EngineSettings(max_model_len=512)
NOOP = "noop"
NAMES = ("celery", "lorry")
TENANTS = 4


class Pipeline:
    """Both arms on one stack."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.held = held_capacity(stack.settings, ENGINE.max_num_seqs, ENGINE.max_loras)
        stack.base(BASE, model.random_model(), ENGINE)
        stack.worker(BASE, LORRY_ENGINE="fake")
        self._noop: Child = stack.start(NOOP, "benchmarks.arms.celery_noop", NOOP, str(self.held))
        self._noop.hear()
        self._celery = make_celery(stack.settings)
        self._celery.conf.task_queues = [queue(NOOP)]
        stack.ready(BASE)

    def run(self, name: str, jobs: int) -> float:
        """Jobs a second."""
        return self._lorry(jobs) if name == "lorry" else self._tasks(jobs)

    def _lorry(self, jobs: int) -> float:
        ids, begun_s = floods.submit(
            self._stack, BASE, *(Flood(f"tenant-{n}", jobs // TENANTS) for n in range(TENANTS))
        )
        self._stack.wait(ids, every_s=0.2)
        return len(ids) / self._stack.finished(ids, begun_s).seconds

    def _tasks(self, jobs: int) -> float:
        self._noop.tell(count=jobs)
        begun = time.time()
        with self._celery.producer_or_acquire() as producer:
            for number in range(jobs):
                wire_id = f"job_{number:032x}"
                self._celery.send_task(
                    celery_noop.TASK, args=(wire_id,), task_id=str(uuid.uuid4()), queue=queue(NOOP), producer=producer
                )
        return jobs / (float(self._noop.hear()) - begun)

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far of each stage's processes."""
        own = {name: psutil.Process(child.pid) for name, child in self._stack.children.items() if name != NOOP}
        found = {("worker" if name.startswith("worker") else name): _with_children(one) for name, one in own.items()}
        for child in psutil.Process().children():
            if child.pid not in {one.pid for one in own.values()} and child.name() in ("postgres", "valkey-server"):
                found[child.name()] = _with_children(child)
        return found


def _with_children(process: psutil.Process) -> float:
    """CPU seconds of a process, its children and those of them that have ended."""
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(one.user + one.system for one in times) + times[0].children_user + times[0].children_system)


def main(argv: list[str] | None = None) -> None:
    """Both arms in turns."""
    given = options.parse("overhead_pipeline", argv)
    jobs = 1_000 if given.quick else 3_000
    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    spent: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="lorry-bench-") as folder, Stack(Path(folder)) as stack:
        pipeline = Pipeline(stack)
        for name in NAMES:
            pipeline.run(name, 500)
        for number, name in turns(NAMES, given.pairs):
            before = pipeline.cpu_s()
            rates[name].append(pipeline.run(name, jobs))
            if name == "lorry":
                after = pipeline.cpu_s()
                spent.update({stage: after[stage] - before[stage] for stage in after})
            print(f"round {number} {name:6} held {pipeline.held} {rates[name][-1]:7.1f} jobs/s", flush=True)
    per_job = {stage: seconds * 1000 / (jobs * given.pairs) for stage, seconds in spent.items()}
    figures.write(
        given.json,
        {
            "pipeline_over_celery_noop": median_ratio(rates, "lorry", "celery"),
            "pipeline_jobs_per_s": median(rates["lorry"]),
            **{f"cpu_ms_per_job_{stage.replace('-', '_')}": value for stage, value in per_job.items()},
        },
        {"tables": tables(rates, per_job), "charts": [chart(per_job)], "rates": rates},
    )


def tables(rates: dict[str, list[float]], per_job: dict[str, float]) -> list[dict[str, Any]]:
    """Rates by arm, CPU by stage."""
    speeds = [[name, f"{median(values):.0f}"] for name, values in rates.items()]
    stages = [[stage, f"{value:.2f}"] for stage, value in per_job.items()]
    return [
        {"title": "Jobs a second", "columns": ["arm", "jobs/s (median)"], "rows": speeds},
        {"title": "CPU time of a job by process", "columns": ["process", "ms"], "rows": stages},
    ]


def chart(per_job: dict[str, float]) -> dict[str, Any]:
    """CPU by stage."""
    labels, values = list(per_job), list(per_job.values())
    return {"kind": "bars", "title": "CPU time of a job by process", "unit": "ms", "labels": labels, "values": values}


if __name__ == "__main__":
    main()
