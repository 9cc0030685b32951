"""All arms of a comparison, Lorry's among them: started once and kept, each runs the same requests in its turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from benchmarks import model
from benchmarks.arms import celery_recipe
from benchmarks.children import until
from benchmarks.stack import Stack, engine_config
from benchmarks.workload import Request
from registry.deployments import EngineSettings
from workers.generation import AdapterRef
from workers.gpu import held_capacity

SCRIPT_ORDERS = {"one": "one", "micro": "micro", "script": "all", "sorted": "sorted"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One arm's run. `activations` None: nobody counts them there."""

    seconds: float
    tokens: int
    activations: float | None

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


class Arms:
    """Names: `one`, `micro`, `script`, `sorted` (one process), `celery-N`, `lorry` or `lorry-HELD`."""

    def __init__(
        self,
        stack: Stack,
        title: str,
        path: Path,
        engine: EngineSettings,
        names: Sequence[str],
        *,
        adapters: int,
        rank: int,
    ) -> None:
        self._stack, self._title, self._engine = stack, title, engine
        folders = [model.adapter(path, model.NAME, rank, seed) for seed in range(adapters)]
        self._refs = [AdapterRef(number + 1, f"bench/{number}", str(at)) for number, at in enumerate(folders)]
        config = engine_config(path, engine, stack.settings.kv_cache_gib)
        self._spoken = [name for name in names if name in SCRIPT_ORDERS]
        if self._spoken:
            self._script = stack.start(f"{title}-script", "benchmarks.arms.script", config)
        self._redis = redis.Redis.from_url(stack.broker_url)
        celery = [name for name in names if name.startswith("celery-")]
        self._publishers = {name: celery_recipe.publisher(stack.broker_url, self._queue(name)) for name in celery}
        for name in celery:
            threads = name.removeprefix("celery-")
            argv = ("benchmarks.arms.celery_recipe", stack.broker_url, self._queue(name), threads, config)
            stack.start(f"{title}-{name}", *argv)
        lorries = [name for name in names if name.startswith("lorry")]
        for name in lorries:
            self._start_lorry(name, path, adapters, rank)
        self._until_ready(lorries)

    def _start_lorry(self, name: str, path: Path, adapters: int, rank: int) -> None:
        base = self.base(name)
        self._stack.base(base, path, self._engine)
        self._stack.adapters(base, adapters, rank)
        held = name.partition("-")[2]
        self._stack.worker(base, **({"LORRY_HELD": held} if held else {}))

    def _until_ready(self, lorries: Sequence[str]) -> None:
        if self._spoken:
            assert self._script.hear() == "ready"
        until(lambda: all(self._redis.get(f"{self._queue(name)}.ready") for name in self._publishers), within_s=180)
        if lorries:
            self._stack.ready(*(self.base(name) for name in lorries))

    def held_and_live(self, name: str) -> tuple[int | str, int]:
        """How many requests an arm can see at once, and how many its engine runs."""
        live = self._engine.max_num_seqs
        held: int | str = "all"
        if name == "one":
            return 1, 1
        if name.startswith("celery-"):
            held = int(name.removeprefix("celery-"))
        elif name.startswith("lorry"):
            number = name.partition("-")[2]
            held = int(number) if number else held_capacity(self._stack.settings, live, self._engine.max_loras)
        return held, live

    def run(self, name: str, requests: Sequence[Request]) -> Outcome:
        """One arm, all requests, from the first hand-over to the last end."""
        if name in SCRIPT_ORDERS:
            answer = self.script(SCRIPT_ORDERS[name], requests)
            return Outcome(answer["seconds"], answer["tokens"], answer["activations"])
        if name in self._publishers:
            return self._celery(name, requests)
        finished = self._stack.run(self.base(name), requests)
        return Outcome(finished.seconds, finished.tokens, finished.activations)

    def script(self, order: str, requests: Sequence[Request], at_s: Sequence[float] = ()) -> dict[str, Any]:
        """The script's process, with its whole answer; `at_s`: when each request arrives."""
        prompts = [self._fields(request) for request in requests]
        answer: dict[str, Any] = self._script.ask(order=order, prompts=prompts, at_s=list(at_s))
        return answer

    def _celery(self, name: str, requests: Sequence[Request]) -> Outcome:
        queue, app = self._queue(name), self._publishers[name]
        begun, tokens = time.perf_counter(), 0
        with app.producer_pool.acquire(block=True) as producer:
            for request in requests:
                app.send_task(celery_recipe.TASK, args=(self._fields(request),), producer=producer)
        for _ in requests:
            popped: Any = self._redis.blpop([celery_recipe.done_list(queue)], timeout=600)
            tokens += int(popped[1])
        return Outcome(time.perf_counter() - begun, tokens, None)

    def _fields(self, request: Request) -> dict[str, Any]:
        ref = None if request.adapter is None else self._refs[request.adapter]
        adapter = None if ref is None else [ref.int_id, ref.name, ref.path]
        return {"text": request.prompt, "max_tokens": request.max_tokens, "adapter": adapter}

    def _queue(self, name: str) -> str:
        return f"{self._title}.{name}"

    def base(self, name: str) -> str:
        """The base that a Lorry arm serves."""
        return f"{self._title}-{name}"
