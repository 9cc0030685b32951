"""vLLM's words for our values, and back: engine arguments, requests, outputs, errors. Keeps no state.

Imports vLLM inside the functions: the engine sets vLLM's environment variables before the first import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from registry.errors import EngineDead, GenerationFailed, InvalidGeneration, LorryError
from workers.generation import AdapterRef, Capacity, EngineConfig, Generated, Generation, Residency


def engine_arguments(config: EngineConfig) -> dict[str, Any]:
    """vLLM's settings for a deployment; `config.extra` has the last word."""
    from vllm.platforms import current_platform

    return {
        "model": config.model_path,
        "revision": config.revision,
        "dtype": config.dtype,
        "max_model_len": config.max_model_len,
        "max_num_seqs": config.max_num_seqs,
        "enable_lora": True,
        "max_loras": config.max_loras,
        "max_lora_rank": config.max_lora_rank,
        "max_cpu_loras": config.max_cpu_loras,
        "tensor_parallel_size": config.tensor_parallel_size,
        "gpu_memory_utilization": config.gpu_memory_utilization,
        "kv_cache_memory_bytes": config.kv_cache_bytes,
        "enforce_eager": current_platform.is_cpu(),
        "scheduling_policy": "fcfs",
        "shutdown_timeout": 30,  # when the whole process group is told to stop, running requests may finish
        "disable_log_stats": False,  # per-request timing comes with the statistics
        "enable_log_requests": False,
        "use_tqdm_on_load": False,
        # What it refuses must fail: the fallbacks of "auto" take schemas that nothing can fit.
        "structured_outputs_config": {"backend": "xgrammar"},
        "worker_extension_cls": "workers.probe.extension.ProbeExtension",
        **config.extra,
    }


def capacity(llm: Any) -> Capacity:
    """How many tokens a started engine has room for."""
    settings = llm.vllm_config
    return Capacity(settings.cache_config.kv_cache_size_tokens, settings.scheduler_config.max_num_batched_tokens)


async def last_output(llm: Any, generation: Generation, request_id: str) -> Any:
    """Run one request to its end; vLLM's RequestOutput."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    sampling, adapter, schema = generation.sampling, generation.adapter, generation.sampling.json_schema
    parameters = SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        stop=list(sampling.stop),
        seed=sampling.seed,
        output_kind=RequestOutputKind.FINAL_ONLY,
        structured_outputs=None if schema is None else StructuredOutputsParams(json=schema),
    )
    prompt = TokensPrompt(prompt_token_ids=list(generation.prompt_token_ids), cache_salt=generation.cache_salt)
    lora = None if adapter is None else LoRARequest(adapter.name, adapter.int_id, adapter.path)
    outputs = [output async for output in llm.generate(prompt, parameters, request_id, lora_request=lora)]
    return outputs[-1]


def generated(output: Any, decode: Callable[[list[int]], str]) -> Generated:
    """Our value for vLLM's RequestOutput. Raises GenerationFailed if vLLM ended the request before its end."""
    completion, times = output.outputs[0], output.metrics
    if completion.finish_reason not in ("stop", "length"):
        raise GenerationFailed(f"The engine ended the request early ({completion.finish_reason}); try it again.")
    text = completion.text
    if completion.finish_reason == "length":
        text = whole_characters(text, decode(list(completion.token_ids)))
    return Generated(
        text=text,
        finish_reason=completion.finish_reason,
        prompt_tokens=len(output.prompt_token_ids),
        output_tokens=len(completion.token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        queue_ms=(times.scheduled_ts - times.queued_ts) * 1000,
        prefill_ms=(times.first_token_ts - times.scheduled_ts) * 1000,
        decode_ms=(times.last_token_ts - times.first_token_ts) * 1000,
        first_token_at_s=times.first_token_ts,
        corrupted=bool(times.is_corrupted),
    )


def whole_characters(streamed: str, decoded: str) -> str:
    """All whole characters of a text that `max_tokens` cut, none that was cut itself.

    vLLM's streaming decoder (`streamed`) holds back every token since the last one that ended with a character, and so
    loses whole ones too. Decoding all tokens at once has them; it differs at the front with some tokenizers (leading
    blanks), and is then not used.
    """
    whole = decoded if decoded.startswith(streamed) else streamed
    return whole.rstrip("\N{REPLACEMENT CHARACTER}")


def refusal(error: Exception) -> LorryError:
    """Our error for vLLM's, without its text: that may quote the prompt."""
    from vllm.exceptions import VLLMClientError
    from vllm.v1.engine.exceptions import EngineDeadError

    if isinstance(error, EngineDeadError):
        return EngineDead("The engine died; every request in it is lost. Close it and start it again.")
    if isinstance(error, VLLMClientError):
        param = getattr(error, "parameter", None)
        return InvalidGeneration(f"The engine refused the request (field: {param or 'unknown'}).", param=param)
    return GenerationFailed(f"The engine lost this request ({type(error).__name__}); try it again.")


def residency(reply: dict[str, Any]) -> Residency:
    """What the probe says of slots and host memory."""
    return Residency(tuple(reply["slots"]), tuple(reply["host"]), reply["step_time_loads"])


def without_names(error: str, adapter: AdapterRef) -> str:
    """vLLM's words about a load, without this machine's paths."""
    return error.replace(adapter.path, "the adapter").replace(adapter.name, "the adapter")[:500]


async def fail_waiting(llm: Any) -> None:
    """End every running request: vLLM's shutdown would drain them first, and then leave who waits for them asleep."""
    from vllm.v1.engine.exceptions import EngineDeadError

    request_ids = list(llm.output_processor.request_states)
    llm.output_processor.propagate_error(EngineDeadError())
    await llm.abort(request_ids, internal=True)
    if llm.output_handler is not None:  # else it meets the end of the engine's process and logs it as a failure
        llm.output_handler.cancel()
