"""From a job's body to the engine's token ids: templates, chat formatting, token bounds.

The API (to refuse what cannot fit) and the worker (to run it) call the same code, so both count alike. Only the
operator's own folder supplies templates; they render in a sandbox all the same.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from registry.errors import InvalidField, PromptTooLong

_SPECIAL_TOKENS = 64
"""Allowance for tokens that the chat template adds and that are shorter than a byte each: a bound, not a count."""


class PromptFormat:
    """How one base model wants its prompts. Loads the tokenizer once, at first need."""

    def __init__(self, model_path: Path, template: list[dict[str, str]]) -> None:
        self._path = model_path
        self._template = template

    def token_ids(self, body: dict[str, Any]) -> list[int]:
        """The prompt's tokens. `body` has exactly one of `document`, `messages`, `prompt`."""
        if "prompt" in body:
            return list(self._tokenizer.encode(body["prompt"], add_special_tokens=True).ids)
        return list(self._tokenizer.encode(self._chat(self.messages(body)), add_special_tokens=False).ids)

    def messages(self, body: dict[str, Any]) -> list[dict[str, str]]:
        """The chat messages of a `document` or `messages` body."""
        if "messages" in body:
            return list(body["messages"])
        document = body["document"]
        return [{"role": m["role"], "content": m["content"].replace("{document}", document)} for m in self._template]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each token of a text by itself begins and ends, in characters."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).offsets)

    def byte_bound(self, body: dict[str, Any]) -> int:
        """More tokens than this the prompt cannot have: each covers at least one byte of the normalized text."""
        text = body["prompt"] if "prompt" in body else self._chat(self.messages(body))
        if (normalizer := self._tokenizer.normalizer) is not None:
            text = normalizer.normalize_str(text)  # Unicode forms can make a text several times as long
        return len(text.encode()) + _SPECIAL_TOKENS

    def check_fits(self, body: dict[str, Any], max_tokens: int, max_model_len: int) -> None:
        """Raise PromptTooLong, with both counts, unless prompt and output fit the context. Cheap for short prompts."""
        if self.byte_bound(body) + max_tokens <= max_model_len:
            return
        prompt_tokens = len(self.token_ids(body))
        check_counts(prompt_tokens, max_tokens, max_model_len)

    def choose_max_tokens(self, body: dict[str, Any], default: int, max_model_len: int) -> int:
        """`max_tokens` for a job that states none: the default, or what the prompt leaves of the context.

        Raises PromptTooLong when it leaves nothing.
        """
        if self.byte_bound(body) + default <= max_model_len:
            return default
        return lowered(len(self.token_ids(body)), default, max_model_len)

    def _chat(self, messages: list[dict[str, str]]) -> str:
        if self._chat_template is None:
            return self._plain(messages)
        try:
            return str(self._chat_template.render(messages=messages, add_generation_prompt=True, **self._specials))
        except TemplateError:
            # The template's own words may quote the messages: say what is wrong without them.
            raise InvalidField(
                "The base model's chat template refuses these messages: check the roles and their order.",
                param="messages",
            ) from None

    @staticmethod
    def _plain(messages: list[dict[str, str]]) -> str:
        return "\n\n".join(m["content"] for m in messages) + "\n\n"

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.from_file(str(self._path / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _config(self) -> dict[str, Any]:
        file = self._path / "tokenizer_config.json"
        config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        return config

    @cached_property
    def _specials(self) -> dict[str, str]:
        named = {name: self._config.get(name) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
        return {n: t["content"] if isinstance(t, dict) else t for n, t in named.items() if t}

    @cached_property
    def _chat_template(self) -> Any:
        file = self._path / "chat_template.jinja"
        source = file.read_text(encoding="utf-8") if file.is_file() else self._config.get("chat_template")
        if isinstance(source, list):  # several named templates: tool use and the like beside the plain one
            source = {named["name"]: named["template"] for named in source}.get("default")
        if not isinstance(source, str):
            return None
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now(UTC).strftime(form)
        return environment.from_string(source)


def check_counts(prompt_tokens: int, max_tokens: int, max_model_len: int) -> None:
    """Raise PromptTooLong unless the exact counts fit."""
    if prompt_tokens + max_tokens > max_model_len:
        raise PromptTooLong(
            f"The prompt has {prompt_tokens} tokens and max_tokens is {max_tokens}, together more than the "
            f"{max_model_len} tokens of the model's context. Shorten the text or lower max_tokens.",
            param="max_tokens" if prompt_tokens < max_model_len else None,
        )


def lowered(prompt_tokens: int, default: int, max_model_len: int) -> int:
    """`max_tokens` where none was stated: the default, or what the prompt leaves. Raises PromptTooLong if that is 0."""
    check_counts(prompt_tokens, 1, max_model_len)
    return min(default, max_model_len - prompt_tokens)


def _refuse(_message: str) -> NoReturn:
    raise TemplateError("refused by the template")
