"""What the fake engine answers, and words that make it fail on purpose: in a prompt's text or in an adapter's
configuration. They mean nothing to the real engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from workers.generation import Generation

LOAD_FAILS_KEY = "fake_load_fails"
"""True in an adapter's adapter_config.json: loading it raises AdapterLoadFailed."""


class Marker(StrEnum):
    """In a prompt."""

    FAIL = "[[fake:fail]]"
    """This request ends with GenerationFailed."""
    FAIL_ONCE = "[[fake:fail-once]]"
    """As above, but the same prompt succeeds at its next try on this engine."""
    DEATH = "[[fake:engine-death]]"
    """The engine dies with everything in it (EngineDead) until it is closed and started again."""
    HANG = "[[fake:hang]]"
    """The engine never answers again, neither this request nor any other, and does not die."""
    POISON = "[[fake:poison]]"
    """The whole process exits at once with code 139, as a segmentation fault would end it."""
    CORRUPT = "[[fake:corrupt]]"
    """The output is flagged as corrupted."""
    CORRUPT_UNTIL_SCRUB = "[[fake:corrupt-until-scrub]]"
    """As above, until the engine has been scrubbed."""


def adapter_fails(folder: Path) -> str | None:
    """Why the fake engine refuses an adapter; None if it loads."""
    try:
        config = json.loads((folder / "adapter_config.json").read_text())
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: the adapter's configuration cannot be read."
    return f"The adapter's configuration sets {LOAD_FAILS_KEY}." if config.get(LOAD_FAILS_KEY) else None


def prompt_reader(model_path: Path) -> Callable[[tuple[int, ...]], str]:
    """Turns prompt ids back into text: by the model's tokenizer if its folder has one, else an id is a byte."""
    tokenizer_file = model_path / "tokenizer.json"
    if not tokenizer_file.exists():
        return lambda token_ids: bytes(token_id for token_id in token_ids if token_id < 256).decode(errors="replace")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    return lambda token_ids: str(tokenizer.decode(list(token_ids)))


def digest(generation: Generation) -> str:
    """The answer to a prompt: 16 hexadecimal digits of adapter name (or `base`) and prompt ids."""
    who = generation.adapter.name if generation.adapter is not None else "base"
    return sha256(f"{who}\0{generation.prompt_token_ids}".encode()).hexdigest()[:16]
