"""What the planner asks of an engine and what an engine answers: plain values, shared by both engines.

Nothing here imports vLLM, the registry or a clock. Times are milliseconds unless the name says otherwise;
`*_at_s` values are seconds of `time.monotonic()`, the one clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal, Protocol

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class AdapterRef:
    """One immutable adapter version as the engine knows it; vLLM keys caches by name, id and path: never reuse one."""

    int_id: int
    """1..2**31-1, never reused: vLLM's `lora_int_id`."""
    name: str
    """`tenant/name@version#digest16`."""
    path: str
    """Absolute folder that holds adapter_config.json and adapter_model.safetensors."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling fields that tenants may set."""

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    json_schema: str | None = None
    """JSON text; the output follows it if it is not cut by `max_tokens`. The fake engine writes what it always does."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One request to an engine. `adapter` None means the bare base model."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: Sampling
    cache_salt: str
    adapter: AdapterRef | None = None


@dataclass(frozen=True, slots=True)
class Generated:
    """A finished request. `text` is whole characters only: a cut inside a character drops that character."""

    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    queue_ms: float
    """From the engine's own queue to its first step; near 0 when the planner admits well."""
    prefill_ms: float
    decode_ms: float
    first_token_at_s: float
    corrupted: bool
    """NaN was seen in this request's logits: the output must not be delivered (design section 10)."""


@dataclass(frozen=True, slots=True)
class Residency:
    """Which adapter ids are where, least recently used first."""

    slots: tuple[int, ...]
    host: tuple[int, ...]
    step_time_loads: int
    """Loads that happened inside an engine step since start: must stay 0."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a running engine has room for, in tokens; None when it is not known or without limit."""

    kv_tokens: int | None = None
    """Prompt and output tokens of all running requests together."""
    batched_tokens: int | None = None
    """Prompt tokens that one step takes in."""


@dataclass(frozen=True, slots=True)
class Swap:
    """What bringing one adapter into a slot cost. `state` is where it was: hot costs nothing, warm is host memory."""

    state: Literal["hot", "warm", "cold"]
    load_ms: float
    """Disk to host memory: read and pack."""
    activate_ms: float
    """Host memory to slot."""
    evicted: tuple[int, ...]
    """Ids that lost their slot."""
    begun_at_s: float
    ended_at_s: float
    residency: Residency | None = None
    """What is where afterwards, by the engine's word."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Engine settings of one deployment, resolved (no `auto` left)."""

    model_path: str
    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_loras: int
    max_lora_rank: int
    max_cpu_loras: int
    tensor_parallel_size: int = 1
    gpu_memory_utilization: float = 0.9
    kv_cache_bytes: int | None = None
    """CPU only: vLLM sizes it from memory on a GPU."""
    revision: str | None = None
    extra: dict[str, object] = field(default_factory=dict)
    """Further vLLM engine arguments, for tests and benchmarks."""


class Engine(Protocol):
    """Both engines keep this contract; `tests/workers/test_engine_contract.py` holds them to it.

    Every coroutine runs on the engine's own event loop (`loop`), in a thread the engine owns.
    """

    config: EngineConfig

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Runs from construction on, through `close` and restarts."""

    def start(self) -> None:
        """Block until the engine serves. Raises EngineStartFailed."""

    @property
    def capacity(self) -> Capacity:
        """Known from `start` on."""

    @property
    def prefilling_tokens(self) -> int:
        """Prompt tokens of the requests that have no first token yet."""

    async def stage(self, adapter: AdapterRef, drop: int | None) -> Residency:
        """Begin to read an adapter's files into host memory, beside the running steps.

        `drop` gives up its host copy if the cache is full. The answer tells what is where then. The adapter's swap only
        activates it; a failure shows there. Raises EngineDead.
        """

    async def is_staged(self, int_id: int) -> bool:
        """Whether a staged adapter is in host memory, or failed: its swap will not wait for the disk."""

    async def unstage(self, int_id: int) -> None:
        """Forget a staged adapter."""

    async def swap_in(self, adapter: AdapterRef, evict: int | None, drop: int | None = None) -> Swap:
        """Bring an adapter into a slot, outside any step. `evict` is the slot's present owner when all are taken.

        `drop` is the adapter whose host copy makes room if the host cache is full; without it, the one least recently
        used that is in no slot.

        `evict` is out of its slot afterwards, load failed or not, and keeps its host copy; a hot adapter evicts nobody.
        Raises AdapterLoadFailed (undone at once: the id is nowhere afterwards), EngineDead, or EngineError when the
        caller broke a rule: no slot free and none named, or requests still run with `evict`.
        A cancelled caller leaves the swap to finish by itself.
        """

    async def generate(self, generation: Generation) -> Generated:
        """Run to the end; cancelling the awaiting task aborts the request in the engine.

        Raises InvalidGeneration (bad request), GenerationFailed (this request only), EngineDead (everything), or
        EngineError when the adapter is in no slot.
        """

    async def residency(self) -> Residency: ...

    async def scrub(self) -> None:
        """Zero the KV cache and forget prefixes. Only with no request running, else EngineError."""

    async def live_adapters(self) -> frozenset[int]:
        """Ids that some unfinished request inside the engine still uses, aborted ones included until they are gone.

        Needed after a cancel only: a request that ended by itself is out of the engine when `generate` returns.
        """

    def close(self, timeout_s: float = 15.0) -> None:
        """Stop the engine and its processes; running requests end with EngineDead. Safe twice and after death.

        `loop` goes on, and `start` may be called again.
        """
