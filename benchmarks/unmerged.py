"""What unmerged adapters cost the engine: base only, 1, 4 and 8 adapters in a batch, ranks equal and mixed.

    python -m benchmarks.unmerged --json FILE [--quick]

Bare AsyncLLM with Lorry's engine arguments and corrected CPU operators; every adapter is in a slot before it is timed.
`one_adapter_over_base` is the median paired ratio of tokens a second with one adapter of rank 16 to the bare base.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks import figures, model, options
from benchmarks.children import Child
from benchmarks.ratios import median_ratio, turns
from benchmarks.stack import engine_config
from benchmarks.workload import prompt
from registry.adapter_files import base_shapes
from registry.deployments import EngineSettings

SLOTS = 8
RANKS = (8, 16, 64)
REQUESTS, TOKENS = 32, 24
ENGINE = EngineSettings(max_model_len=512, max_loras=SLOTS, max_lora_rank=max(RANKS), max_cpu_loras=64)
BYTES = 2
"""Of a number in a slot: bfloat16."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Which adapters share a batch; no ranks means the bare base."""

    name: str
    ranks: tuple[int, ...]


def mixes() -> list[Mix]:
    """All that is measured."""
    equal = [Mix(f"{n} x r{rank}", (rank,) * n) for rank in RANKS for n in (1, 4, 8)]
    return [Mix("base", ()), *equal, Mix("8 of r8, r16, r64", (8, 16, 64, 8, 16, 64, 8, 16))]


def prompts(mix: Mix, path: Path, seed: int, tokens: int) -> list[dict[str, Any]]:
    """Requests that go round the mix's adapters."""
    random, refs = Random(f"{mix.name}/{seed}"), []
    for number, rank in enumerate(mix.ranks):
        folder = model.adapter(path, model.NAME, rank, number)
        refs.append([rank * 100 + number + 1, f"bench/r{rank}-{number}", str(folder)])
    return [
        {"text": prompt(random, 12), "max_tokens": tokens, "adapter": refs[n % len(refs)] if refs else None}
        for n in range(REQUESTS)
    ]


def measure(path: Path, pairs: int) -> dict[str, list[float]]:
    """Tokens a second of each mix, in turns."""
    wanted = {mix.name: mix for mix in mixes()}
    rates: dict[str, list[float]] = {name: [] for name in wanted}
    with tempfile.TemporaryDirectory(prefix="lorry-bench-") as folder:
        config = engine_config(path, ENGINE, kv_cache_gib=1.0)
        child = Child(["benchmarks.arms.script", config], Path(folder) / "script.log")
        try:
            child.hear()
            for number, name in turns(list(wanted), pairs):
                child.ask(order="all", prompts=prompts(wanted[name], path, -number - 1, 2))
                answer = child.ask(order="all", prompts=prompts(wanted[name], path, number, TOKENS))
                rates[name].append(answer["tokens"] / answer["seconds"])
                print(f"{name:18} live {REQUESTS} {rates[name][-1]:7.1f} tok/s", flush=True)
        finally:
            child.close()
    return rates


def slot_bytes(path: Path, rank: int) -> int:
    """What one slot takes in the engine when its ceiling is `rank`: A and B of every linear layer."""
    shapes = base_shapes(path)
    return BYTES * rank * sum(sum(shape) for name, shape in shapes.items() if name.rpartition(".")[2] in model.TARGETS)


def memory_table(path: Path) -> dict[str, Any]:
    """A slot and a file of each rank against a whole model for each tenant."""
    whole = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    rows = []
    for rank in RANKS:
        stored = (model.adapter(path, model.NAME, rank, 0) / "adapter_model.safetensors").stat().st_size
        slot = slot_bytes(path, rank)
        rows.append([f"r{rank}", f"{stored / 2**20:.1f}", f"{slot / 2**20:.1f}", f"{whole / slot:.0f}"])
    columns = ["rank", "file, MiB", "slot, MiB", "slots in the memory of one more model"]
    return {"title": f"Memory per adapter (the model has {whole / 2**20:.0f} MiB)", "columns": columns, "rows": rows}


def main(argv: list[str] | None = None) -> None:
    """Measure and write."""
    given = options.parse("unmerged", argv)
    path = model.random_model()
    rates = measure(path, given.pairs)
    rows = [
        [name, f"{median(values):.0f}", f"{median_ratio(rates, name, 'base'):.2f}"] for name, values in rates.items()
    ]
    speeds = {
        "title": f"{REQUESTS} requests of {TOKENS} tokens, all live",
        "columns": ["adapters in the batch", "tok/s (median)", "of the bare base"],
        "rows": rows,
    }
    chart = {
        "kind": "bars",
        "title": "Unmerged adapters in one batch",
        "unit": "tokens/s",
        "labels": list(rates),
        "values": [median(values) for values in rates.values()],
    }
    figures.write(
        given.json,
        {
            "one_adapter_over_base": median_ratio(rates, "1 x r16", "base"),
            "eight_adapters_over_base": median_ratio(rates, "8 x r16", "base"),
            "eight_mixed_ranks_over_base": median_ratio(rates, mixes()[-1].name, "base"),
        },
        {"tables": [speeds, memory_table(path)], "charts": [chart], "rates": rates},
    )


if __name__ == "__main__":
    main()
