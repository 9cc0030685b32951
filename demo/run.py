"""Owns the course of `lorry demo`: base model, stack, tenants, jobs, report. Each step's work is another module's.

base_model (a process of its own)  ->  join  ->  onboard  ->  client  ->  report, screen
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from api.cli.stack import Stack
from demo import join
from demo.client import Customers
from demo.onboard import make_keys, onboard
from demo.report import Outcome, build_report
from demo.screen import Live, Screen, show_result, show_samples
from demo.tickets import TENANTS, held_out_tickets, job_body
from registry.errors import ConfigurationError
from registry.settings import Settings, get_settings

REPOSITORY = Path(__file__).resolve().parent.parent
ENGINE_START_TIMEOUT_S = 600.0
RUN_KEY_DAYS = 1
"""Keys of a run are known to that run only; they end by themselves."""


@dataclass(frozen=True)
class Plan:
    """What to do, as the command line says."""

    jobs: int = 160
    report: Path | None = None
    onboard_only: bool = False
    keep: bool = False


def run(plan: Plan) -> bool:
    """Whether every job succeeded. Raises LorryError, or KeyboardInterrupt once all is stopped after Ctrl-C."""
    return asyncio.run(_Run(plan, get_settings(), Screen()).guarded())


class _Run:
    """One run. A first signal cancels it, which stops its stack in order; a second one stops the stack at once."""

    def __init__(self, plan: Plan, settings: Settings, screen: Screen) -> None:
        self._plan, self._settings, self._screen = plan, settings, screen
        self._own: Stack | None = None

    async def guarded(self) -> bool:
        """The run, stopped by SIGINT, SIGTERM and SIGHUP."""
        task = asyncio.create_task(self._onboard_only() if self._plan.onboard_only else self._all())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, task)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    def _on_signal(self, task: asyncio.Task[bool]) -> None:
        if not task.cancelling():
            self._screen.say("stopping what the demo started; once more to stop at once")
            task.cancel()
        elif self._own is not None:
            self._own.stop_at_once()

    async def _onboard_only(self) -> bool:
        running = join.require_running(self._settings)
        await self._on_board()
        keys = await asyncio.to_thread(make_keys, self._settings, "demo", None)
        self._show_keys(running, keys)
        return True

    async def _all(self) -> bool:
        base = await self._base_model()
        self._screen.step("the stack: PostgreSQL, Valkey, API, dispatcher, workers, Flower")
        async with join.own_or_running(self._settings, self._screen.say, self._remember) as running:
            self._screen.say(f"API {running.api_url}, Flower {running.flower_url} ({self._flower_login()})")
            await self._on_board(base)
            self._screen.step("the engine: vLLM starts (well under a minute on most machines)")
            await running.wait_for_workers(ENGINE_START_TIMEOUT_S)
            keys = await asyncio.to_thread(make_keys, self._settings, "demo run", RUN_KEY_DAYS)
            outcomes = await self._work(running, keys)
            if self._plan.keep and self._own is not None:
                await self._keep(running, keys)
        self._where_next()
        return all(outcome.job["status"] == "succeeded" for outcome in outcomes)

    def _remember(self, own: Stack) -> None:
        self._own = own

    async def _base_model(self) -> Path:
        """The base model's folder, made in a process of its own: torch must not stay. Raises ConfigurationError."""
        self._screen.step("the base model: SmolLM2-135M-Instruct")
        data_dir = self._settings.data_dir.absolute()
        log = data_dir / "logs" / "base_model.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as noise:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-u", "-m", "demo.base_model", str(data_dir)),
                stdout=asyncio.subprocess.PIPE,
                stderr=noise,
                cwd=REPOSITORY,
            )
        last = await self._told_by(process)
        if process.returncode:
            words = "\n".join(log.read_text("utf-8", "replace").splitlines()[-5:])
            raise ConfigurationError(f"The base model could not be made ({log}):\n{words}")
        return Path(last)

    async def _told_by(self, process: asyncio.subprocess.Process) -> str:
        """Show a process's lines as they come; the last one is its result."""
        assert process.stdout is not None
        last = ""
        try:
            async for line in process.stdout:
                if last:
                    self._screen.say(last)
                last = line.decode().strip()
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return last

    async def _on_board(self, base: Path | None = None) -> None:
        folder = base or await self._base_model()
        self._screen.step("the tenants: four customers, an adapter each")
        await asyncio.to_thread(onboard, self._settings, folder, self._screen.say)

    async def _work(self, running: join.Running, keys: dict[str, str]) -> list[Outcome]:
        """Submit, follow, show, write the report."""
        self._screen.step(f"the jobs: {self._plan.jobs} tickets no adapter has seen, tenants taking turns")
        begun_at_s = time.monotonic()
        async with Customers(running.api_url, keys) as customers:
            submitted = await customers.submit(self._plan.jobs)
            self._screen.say(f"{len(submitted)} jobs submitted in {time.monotonic() - begun_at_s:.1f} s")
            with Live(self._screen, submitted) as live:
                outcomes = await customers.follow(submitted, live.show)
        took_s = time.monotonic() - begun_at_s
        self._screen.step("the summaries")
        show_samples(self._screen, outcomes)
        report = build_report(outcomes)
        show_result(self._screen, report, outcomes, took_s)
        if self._plan.report is not None:
            self._plan.report.write_text(json.dumps(report, ensure_ascii=False, indent=2) + "\n", "utf-8")
            self._screen.say(f"report: {self._plan.report}")
        return outcomes

    async def _keep(self, running: join.Running, keys: dict[str, str]) -> None:
        self._show_keys(running, keys)
        self._screen.say("the stack stays up; Ctrl-C stops it")
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
            return
        # The wish to stop is fulfilled by going on to the end; it is no failure of the run.
        if task := asyncio.current_task():
            task.uncancel()

    def _show_keys(self, running: join.Running, keys: dict[str, str]) -> None:
        self._screen.step("the keys, shown this once")
        for tenant in TENANTS:
            self._screen.say(f"{tenant.id:<8} {keys[tenant.id]}")
        first = TENANTS[0]
        body = json.dumps(job_body(first, held_out_tickets(first, 1)[0]), ensure_ascii=False)
        self._screen.say("a job by hand:")
        self._screen.console.print(
            f"curl -s {running.api_url}/v1/jobs -H 'Authorization: Bearer {keys[first.id]}' \\\n"
            f"  -H 'Content-Type: application/json' -d '{body}'",
            soft_wrap=True,
        )

    def _where_next(self) -> None:
        self._screen.step("where to look next")
        if self._own is not None:
            self._screen.say(
                "`make up` starts a stack that stays; `lorry demo --onboard-only` loads these tenants there"
            )
        self._screen.say(
            "`lorry status` and `lorry jobs list` show it from the inside, README.md tours the API with curl"
        )

    def _flower_login(self) -> str:
        user = self._settings.flower_user
        if self._settings.flower_password:
            return f"user {user}, password from LORRY_FLOWER_PASSWORD"
        file = self._settings.data_dir / "secrets" / "flower"
        return f"user {user}, password {file.read_text('ascii').strip()}" if file.exists() else f"user {user}"
