"""OpenAI's request bodies, turned into our jobs: for the lines of a batch and for the calls that answer at once.

Fields that we serve are passed on. Fields that we do not serve are accepted only with the value that asks for nothing
(`n: 1`, `stream: false`); any other value is refused by name, so that nothing a caller asked for is silently left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from registry.errors import InvalidField
from registry.shapes import JobCreate
from registry.validation import checked, unknown_field

_PASSED: Final = frozenset({"model", "temperature", "top_p", "stop", "seed", "metadata", "max_tokens"})
# What a caller says about itself, not about the answer: any text.
_REMARKS: Final = frozenset({"user", "safety_identifier", "prompt_cache_key"})
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "stream": (False,),
    "stream_options": (),
    "frequency_penalty": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "logit_bias": ({},),
    "store": (False,),
    "service_tier": ("auto", "default"),
}
_NEUTRAL_CHAT: Final[Mapping[str, tuple[Any, ...]]] = {
    **_NEUTRAL,
    "logprobs": (False,),
    "top_logprobs": (0,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "web_search_options": (),
    "prompt_cache_retention": (),
}
_NEUTRAL_COMPLETION: Final[Mapping[str, tuple[Any, ...]]] = {
    **_NEUTRAL,
    "logprobs": (),
    "echo": (False,),
    "best_of": (1,),
    "suffix": ("",),
}
_MESSAGE_FIELDS: Final = frozenset({"role", "content"})
_MESSAGE_NEUTRAL: Final = frozenset({"name", "refusal", "tool_calls", "function_call", "audio"})


def from_chat(body: dict[str, Any]) -> JobCreate:
    """The job of a `/v1/chat/completions` body. Raises InvalidField or InvalidText, `param` being the field's name."""
    fields = _fields(
        body, _NEUTRAL_CHAT, {"messages": _messages, "max_completion_tokens": None, "response_format": _format}
    )
    alias = fields.pop("max_completion_tokens", None)
    if alias is not None and fields.setdefault("max_tokens", alias) != alias:
        raise InvalidField("max_tokens and max_completion_tokens mean the same: give one.", param="max_tokens")
    return _job(fields, "messages")


def from_completion(body: dict[str, Any]) -> JobCreate:
    """The job of a `/v1/completions` body. Raises InvalidField or InvalidText, `param` being the field's name."""
    return _job(_fields(body, _NEUTRAL_COMPLETION, {"prompt": _prompt}), "prompt")


def _fields(
    body: dict[str, Any],
    neutral: Mapping[str, tuple[Any, ...]],
    own: Mapping[str, Callable[[Any], Any] | None],
) -> dict[str, Any]:
    """What of the body is served; null means not given, as OpenAI's clients send it."""
    fields: dict[str, Any] = {}
    for name, value in body.items():
        if name in own:
            read = own[name]
            fields[name] = read(value) if read and value is not None else value
        elif name in _PASSED:
            fields[name] = value
        elif name in _REMARKS:
            if value is not None and not isinstance(value, str):
                raise InvalidField(f"{name}: the value has to be text.", param=name)
        elif name in neutral:
            _check_neutral(name, value, neutral[name])
        else:
            raise unknown_field(name)
    return {name: value for name, value in fields.items() if value is not None}


def _job(fields: dict[str, Any], wanted: str) -> JobCreate:
    for name in ("model", wanted):
        if name not in fields:
            raise InvalidField(f"{name}: the field is missing.", param=name)
    return checked(JobCreate, fields)


def _check_neutral(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    # By type as well: `true` equals 1 in Python, and in no API.
    if value is None or any(type(value) is type(known) and value == known for known in allowed):
        return
    said = " or ".join(repr(known).lower() if isinstance(known, bool) else str(known) for known in allowed)
    raise InvalidField(f"{name} is not served here; leave it out{f' or send {said}' if said else ''}.", param=name)


def _messages(value: Any) -> Any:
    """The messages in our form; what is no list of objects is left for the model's own complaint."""
    if not isinstance(value, list):
        return value
    return [_message(message, f"messages[{at}]") if isinstance(message, dict) else message
            for at, message in enumerate(value)]  # fmt: skip


def _message(message: dict[str, Any], at: str) -> dict[str, Any]:
    if message.keys() == _MESSAGE_FIELDS and isinstance(message["content"], str) and message["role"] != "developer":
        return message  # nearly every message
    made: dict[str, Any] = {}
    for name, value in message.items():
        if name == "content":
            made[name] = _joined(value, at) if isinstance(value, list) else value
        elif name == "role":
            made[name] = "system" if value == "developer" else value
        elif name not in _MESSAGE_NEUTRAL:
            raise InvalidField(f"{at} has a field that is not served here; send role and content.", param=at)
        elif value is not None and value != []:
            raise InvalidField(f"{at}.{name} is not served here; leave it out.", param=f"{at}.{name}")
    return made


def _joined(parts: list[Any], at: str) -> str:
    """Text parts become one text, a line each; images and the like are refused."""
    texts = []
    for part in parts:
        if not isinstance(part, dict) or part.keys() != {"type", "text"} or part["type"] != "text":
            raise InvalidField(f'{at}.content: only {{"type": "text", "text": …}} parts are served.', param=at)
        if not isinstance(part["text"], str):
            raise InvalidField(f"{at}.content: the text of a part has to be text.", param=at)
        texts.append(part["text"])
    return "\n".join(texts)


def _format(value: Any) -> Any:
    return None if value == {"type": "text"} else value


def _prompt(value: Any) -> Any:
    if isinstance(value, list):
        if len(value) != 1 or not isinstance(value[0], str):
            raise InvalidField("prompt: send one text; several prompts are several jobs.", param="prompt")
        return value[0]
    return value
