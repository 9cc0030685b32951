"""The long form: hundreds of random kills under load, then quiet, with the product's own beat and lease.

`python -m tests.faults.long --kills 200 --healthy-s 600 --json docs/reliability.json`; `make faults`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy import text

from benchmarks import figures
from tests.e2e.crew import eventually
from tests.faults import page
from tests.faults.checker import Verdict, count, inspect, settled
from tests.faults.cluster import Cluster
from tests.faults.crowd import Crowd
from tests.faults.health import Health, healthy
from tests.faults.kills import Killer
from tests.faults.traffic import Traffic
from tests.receiver import Receiver

WORKERS = {"worker": 7, "dispatcher": 2, "io": 1}
SERVERS = {"redis": 3, "postgres": 2, "dispatcher": 1, "io": 1}
ALL = {"worker": 4, "dispatcher": 2, "redis": 2, "postgres": 1, "io": 2}
END_S = 600.0

_TWICE = text("SELECT count(*) - count(DISTINCT custom_id) FROM jobs WHERE custom_id IS NOT NULL")
_GIVEN_UP = text("SELECT count(*) FROM jobs WHERE error_code = 'worker_lost'")
_UNDELIVERED = text("SELECT count(*) FROM webhook_deliveries WHERE state <> 'delivered'")


def main(argv: list[str] | None = None) -> int:
    """Run, write the figures, and say by the exit status whether every promise was kept."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.long", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--healthy-s", type=float, default=600.0)
    parser.add_argument("--sigterms", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args(argv)
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    say(f"seed {seed}: {options.kills} kills, {options.sigterms} x SIGTERM, {options.healthy_s:.0f} s of quiet")
    with tempfile.TemporaryDirectory(prefix="lorry-faults-") as folder:
        run = Run(Path(folder), seed)
        try:
            taken, raw = run.whole(options.kills, options.sigterms, options.healthy_s)
            figures.write(options.json, taken, {"seed": seed, **raw})
        finally:
            run.close()
    return 0 if page.kept(taken) else 1


class Run:
    """One cluster from its start to its checked end."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._receiver = Receiver()
        self._receiver.__enter__()
        port = str(self._receiver.port)
        self._cluster = Cluster(
            folder, LORRY_FAKE_STEP_MS="20", LORRY_WEBHOOK_PORTS=port, LORRY_WEBHOOK_ALLOW_NETWORKS="127.0.0.0/8"
        )
        self._crowd = Crowd(self._cluster)
        self._killer = Killer(self._cluster, self._crowd, seed, self._progress)

    def close(self) -> None:
        """Leave no process."""
        self._cluster.__exit__()
        self._receiver.__exit__(None, None, None)

    def whole(self, kills: int, sigterms: int, healthy_s: float) -> tuple[dict[str, float], dict[str, Any]]:
        """All parts in order; figures and what is behind them."""
        begun = time.monotonic()
        self._crowd.tend()
        traffic = Traffic(self._cluster, self._cluster.api(), self._receiver.url)
        traffic.start()
        self._killer.until(lambda: len(self._crowd.busy()) == len(self._crowd.alive("worker")))
        some, few = kills * 3 // 10, kills // 5
        self._killer.run(kills - some - few, WORKERS, every_s=(1.5, 5.0), timed=True)
        self._killer.finish()
        for number in range(sigterms):
            self._killer.sigterm(slow=number % 2 == 0)
            say(f"SIGTERM {number + 1} of {sigterms}: {self._killer.measured.sigterm_exit_s[-1]:.1f} s")
        self._killer.run(some, SERVERS, every_s=(1.0, 4.0), timed=False)
        self._killer.run(few, ALL, every_s=(1.5, 5.0), timed=False)
        self._killer.finish()
        recovered_s = self._killer.measured.worker_recovery_s
        say(f"{len(recovered_s)} recoveries, the longest {max(recovered_s, default=0.0):.1f} s; quiet from here on")
        health = healthy(self._cluster, self._crowd, self._killer, healthy_s)
        verdict, raw = self._end(traffic)
        raw |= {"seconds": time.monotonic() - begun, "healthy": asdict(health)}
        return self._figures(verdict, health, raw), raw

    def _end(self, traffic: Traffic) -> tuple[Verdict, dict[str, Any]]:
        say("no more submissions; the rest is worked off")
        traffic.stop()
        broken = traffic.acknowledge_lines()
        self._killer.until(lambda: not self._open(), END_S)
        self._killer.until(lambda: not count(self._cluster, _UNDELIVERED), END_S)
        # Tallies of the last jobs are folded within a second; batches end after that.
        eventually(lambda: not inspect(self._cluster).miscounted, within_s=30, every_s=2)
        verdict = inspect(self._cluster)
        heard = Counter(received.event["data"]["id"] for received in self._receiver.received)
        verdict.doubled += count(self._cluster, _TWICE)
        unheard = traffic.announced - heard.keys()
        raw = {
            "faults": {name: repr(found)[:500] for name, found in verdict.faults.items()},
            "traffic": asdict(traffic.counts),
            "broken_batches": broken,
            "unheard": len(unheard),
            "announced": len(traffic.announced),
            "heard_twice": sum(times > 1 for times in heard.values()),
            "given_up": count(self._cluster, _GIVEN_UP),
            "states": dict(verdict.states),
            "measured": asdict(self._killer.measured),
        }
        return verdict, raw

    def _open(self) -> bool:
        try:
            settled(self._cluster, within_s=0.1)
        except AssertionError:
            return True
        return False

    def _figures(self, verdict: Verdict, health: Health, raw: dict[str, Any]) -> dict[str, float]:
        measured = self._killer.measured
        return {
            "kills": sum(measured.kills.values()),
            "lost": len(verdict.lost) + measured.orphans + raw["broken_batches"] + raw["unheard"],
            "doubled": verdict.doubled,
            "wrong": sum(bool(found) for name, found in verdict.faults.items() if name not in ("lost", "doubled")),
            "worker_recovery_p100_s": max(measured.worker_recovery_s, default=0.0),
            "redis_resume_s": max(measured.redis_resume_s, default=0.0),
            "sigterm_exit_s": max(measured.sigterm_exit_s, default=0.0),
            "false_rescues": health.false_rescues,
            "jobs": verdict.jobs,
            "memory_mb_per_min": health.memory_mb_per_min,
        }

    def _progress(self, words: str) -> None:
        kills = sum(self._killer.measured.kills.values())
        say(f"{kills:4} {words}")


def say(words: str) -> None:
    """A line of progress."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
