"""How many adapters fit beside a model and its KV cache, and how many workers a load needs: pure arithmetic.

Bytes and tokens in, slots and sentences out. Reads no file and asks no device: see `model_shape` for the model's side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

GIB = 1024**3
MIB = 1024**2
RESERVE_SHARE = 0.05
"""Of the usable memory, for activations, graphs and fragments; vLLM measures its own need at start."""
CONTEXT_FILL = 0.5
"""How full of tokens a running job's context is counted, when all places of the running batch are taken."""
MAX_SLOTS = 256
SPARE_SLOTS = 1.25
"""Room for adapters that come after the start."""
MIN_SLOTS = 8
"""Slots of an installation that has no or few adapters yet, if they fit."""
HOST_SHARE = 0.25
"""Of the machine's memory, for adapters that are in no slot."""
MAX_HOST_COPIES = 1024
BUSY_SHARE = 0.7
"""How busy a planned worker may be: above it waits grow faster than load."""
HOST_LINK_BYTES_S = 10e9
"""From host memory to the device, of small copies over PCIe."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a base model costs memory. `adapter_bytes_per_rank`: A and B of every matrix, for one unit of rank."""

    weight_bytes: int
    kv_bytes_per_token: int
    adapter_bytes_per_rank: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What a deployment asks for. `adapters`: how many are in service, 0 when unknown. Memory is for one engine."""

    memory_bytes: int
    utilization: float
    max_num_seqs: int
    max_model_len: int
    max_lora_rank: int
    adapters: int = 0
    kv_bytes: int | None = None
    """KV cache of a fixed size; None: what the running batch needs, and all that is left."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Where the memory goes. `slots` 0: the model and its KV cache leave no room for an adapter."""

    usable_bytes: int
    weight_bytes: int
    reserve_bytes: int
    kv_need_bytes: int
    kv_bytes_per_token: int
    slot_bytes: int
    fitting: int
    slots: int
    adapters: int

    @property
    def slots_bytes(self) -> int:
        """What all slots take."""
        return self.slots * self.slot_bytes

    @property
    def kv_left_bytes(self) -> int:
        """What remains for the KV cache beside weights, reserve and slots."""
        return self.usable_bytes - self.weight_bytes - self.reserve_bytes - self.slots_bytes

    @property
    def kv_left_tokens(self) -> int:
        """The same in tokens."""
        return max(0, self.kv_left_bytes) // self.kv_bytes_per_token

    @property
    def never_swaps(self) -> bool:
        """Whether every known adapter has a slot of its own."""
        return 0 < self.adapters <= self.slots

    def lines(self) -> list[str]:
        """The arithmetic, for people."""
        spare = self.usable_bytes - self.weight_bytes - self.reserve_bytes - self.kv_need_bytes
        found = [
            f"{gib(self.usable_bytes)} usable - {gib(self.weight_bytes)} weights - {gib(self.reserve_bytes)} reserve "
            f"- {gib(self.kv_need_bytes)} for the KV cache at least = {gib(spare)} for adapters",
            f"{gib(max(0, spare))} / {self.slot_bytes / MIB:.1f} MiB a slot = {self.fitting} slots that fit; "
            f"{self.slots} taken",
        ]
        if self.never_swaps:
            found.append(f"All {self.adapters} adapters fit in slots: nothing will ever swap.")
        return found


def size(model: ModelShape, wish: Wish) -> Sizing:
    """Slots for a deployment: as many as fit, but not many more than there are adapters."""
    usable = int(wish.memory_bytes * wish.utilization)
    reserve = int(usable * RESERVE_SHARE)
    context = int(wish.max_num_seqs * wish.max_model_len * CONTEXT_FILL)
    left = max(0, usable - model.weight_bytes - reserve)
    wanted_kv = max(wish.max_model_len * model.kv_bytes_per_token, min(context * model.kv_bytes_per_token, left // 2))
    kv_need = wish.kv_bytes if wish.kv_bytes is not None else wanted_kv
    slot = max(1, model.adapter_bytes_per_rank * wish.max_lora_rank)
    fitting = max(0, left - kv_need) // slot
    wanted = max(MIN_SLOTS, ceil(wish.adapters * SPARE_SLOTS)) if wish.adapters else MAX_SLOTS
    slots = min(fitting, wanted, MAX_SLOTS)
    return Sizing(
        usable, model.weight_bytes, reserve, kv_need, model.kv_bytes_per_token, slot, fitting, slots, wish.adapters
    )


def host_copies(model: ModelShape, rank: int, slots: int, host_bytes: int, adapters: int = 0) -> int:
    """`max_cpu_loras`: every adapter that a quarter of the host's memory holds, and one that is read ahead."""
    fitting = int(host_bytes * HOST_SHARE) // max(1, model.adapter_bytes_per_rank * rank)
    wanted = max(4 * slots, ceil(adapters * SPARE_SLOTS))
    return max(slots + 1, min(fitting, wanted, MAX_HOST_COPIES))


@dataclass(frozen=True, slots=True)
class CostModel:
    """What an engine's step costs: `base_s` whatever runs, `row_s` for each live job. A swap stops all for `swap_s`."""

    base_s: float
    row_s: float
    swap_s: float

    def step_s(self, live: int) -> float:
        """One token for each of `live` jobs."""
        return self.base_s + self.row_s * live

    def engine_s_per_job(self, live: int, output_tokens: float, missing: float) -> float:
        """Engine time of one job among `live`; `missing`: how likely it finds its adapter in no slot."""
        return (output_tokens + 1) * self.step_s(live) / live + missing * self.swap_s


def memory_bound(model: ModelShape, bandwidth_bytes_s: float, rank: int, context_tokens: float) -> CostModel:
    """An estimate before anything is measured: a step reads the weights once, and each job's own KV cache."""
    row_s = model.kv_bytes_per_token * context_tokens / bandwidth_bytes_s
    swap_s = model.adapter_bytes_per_rank * rank / HOST_LINK_BYTES_S
    return CostModel(model.weight_bytes / bandwidth_bytes_s, row_s, swap_s)


def workers_needed(
    cost: CostModel, jobs_per_hour: float, *, output_tokens: float, live: int, slots: int, adapters: int
) -> int:
    """The fewest workers that are busy for at most `BUSY_SHARE`. Any worker may get any job, and every adapter is asked
    for equally often: the worst case for swaps."""
    missing = max(0.0, 1 - slots / adapters) if adapters else 0.0
    busy = jobs_per_hour / 3600 * cost.engine_s_per_job(live, output_tokens, missing)
    return max(1, ceil(busy / BUSY_SHARE))


def gib(count: float) -> str:
    """Bytes for people."""
    return f"{count / GIB:.2f} GiB"
