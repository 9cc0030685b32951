"""vLLM's AsyncLLM as a script would use it: text in, vLLM tokenizes, loads adapters and orders by itself.

Started with the same engine arguments, process layout and corrected CPU operators as Lorry's engine, by Lorry's own
start; after that nothing of Lorry stands between a request and vLLM.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

from workers.engine import VllmEngine
from workers.generation import AdapterRef


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request as a script has it."""

    text: str
    max_tokens: int
    adapter: AdapterRef | None

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Prompt:
        """`{"text", "max_tokens", "adapter": null or [int_id, name, path]}`."""
        adapter = fields["adapter"]
        return cls(fields["text"], fields["max_tokens"], None if adapter is None else AdapterRef(*adapter))


@dataclass(frozen=True, slots=True)
class Done:
    """What a request came to. `waited_s`: in vLLM's queue, until its first step."""

    tokens: int
    waited_s: float
    took_s: float


class BareEngine(VllmEngine):
    """`complete` is the whole path of a script's request."""

    _numbers = itertools.count()

    async def complete(self, prompt: Prompt) -> Done:
        """Run one request to its end."""
        from vllm.sampling_params import RequestOutputKind

        outputs = [output async for output in self._outputs(prompt, RequestOutputKind.FINAL_ONLY)]
        times = outputs[-1].metrics
        return Done(
            len(outputs[-1].outputs[0].token_ids),
            times.scheduled_ts - times.queued_ts,
            times.last_token_ts - times.scheduled_ts,
        )

    async def stream(self, prompt: Prompt, times: list[float]) -> None:
        """Run one request, noting when each token came."""
        from vllm.sampling_params import RequestOutputKind

        async for _ in self._outputs(prompt, RequestOutputKind.DELTA):
            times.append(time.monotonic())

    def _outputs(self, prompt: Prompt, kind: Any) -> Any:
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        parameters = SamplingParams(max_tokens=prompt.max_tokens, temperature=0.0, output_kind=kind)
        ref = prompt.adapter
        lora = None if ref is None else LoRARequest(ref.name, ref.int_id, ref.path)
        return self._alive().generate(prompt.text, parameters, f"bare-{next(self._numbers)}", lora_request=lora)

    async def loads_in_steps(self) -> int:
        """Activations that vLLM made by itself so far."""
        return (await self.residency()).step_time_loads

    async def drop(self, adapter: AdapterRef) -> None:
        """Forget an adapter: out of its slot and of host memory."""
        await self._rpc("lorry_forget", adapter.int_id)
        await self.residency()  # the guard hears of it
