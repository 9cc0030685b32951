"""What people write: a Celery worker whose task awaits AsyncLLM, in arrival order, with a concurrency they chose.

`python -m benchmarks.arms.celery_recipe BROKER QUEUE CONCURRENCY CONFIG`. Threads, because prefork children cannot
start vLLM. Each finished task pushes its token count onto the Redis list `QUEUE.done`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import redis
from celery import Celery

from benchmarks.arms.bare import BareEngine, Prompt
from workers.generation import EngineConfig

TASK = "recipe.generate"


def publisher(broker: str, queue: str) -> Celery:
    """The application as whoever submits sees it."""
    app = Celery("recipe", broker=broker)
    app.conf.update(task_default_queue=queue, task_ignore_result=True)
    return app


def done_list(queue: str) -> str:
    """Where finished tasks are told."""
    return f"{queue}.done"


def main() -> None:
    """Run the worker until it is killed."""
    broker, queue, concurrency, config = sys.argv[1:5]
    engine = BareEngine(EngineConfig(**json.loads(config)))
    engine.start()
    app, client = publisher(broker, queue), redis.Redis.from_url(broker)

    @app.task(name=TASK)  # type: ignore[untyped-decorator]
    def generate(fields: dict[str, Any]) -> None:
        work = engine.complete(Prompt.from_json(fields))
        done = asyncio.run_coroutine_threadsafe(work, engine.loop).result()
        client.rpush(done_list(queue), done.tokens)

    client.set(f"{queue}.ready", 1)
    app.Worker(
        hostname=f"{queue}@recipe",
        pool="threads",
        concurrency=int(concurrency),
        queues=[queue],
        loglevel="WARNING",
        without_gossip=True,
        without_mingle=True,
        quiet=True,
    ).start()


if __name__ == "__main__":
    main()
