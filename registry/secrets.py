"""Secrets at rest: sealed with AES-GCM under one key of the installation, and bound to the row that holds them.

The key comes from `LORRY_SECRET_KEY`, or from a file below the data folder that the first process to need it makes.
Nothing here logs, and no error carries a secret.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from functools import cached_property
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from registry.errors import ConfigurationError
from registry.settings import Settings

_NONCE_BYTES: Final = 12
_VERSION: Final = b"\x01"


class SecretBox:
    """Seals and opens. The key is read at first use, so that a process that needs none makes no file."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def seal(self, secret: str, owner: str) -> bytes:
        """The secret, for storing beside `owner` only: opening it under another owner fails."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, secret.encode(), owner.encode())

    def open(self, sealed: bytes, owner: str) -> str:
        """The secret again. Raises ConfigurationError when this installation's key did not seal it."""
        nonce, text = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            if sealed[:1] != _VERSION:
                raise InvalidTag
            return self._cipher.decrypt(nonce, text, owner.encode()).decode()
        except (InvalidTag, ValueError):
            raise ConfigurationError(
                "A stored secret cannot be opened: every process needs the LORRY_SECRET_KEY that it was sealed with, or"
                " the data folder's file secrets/sealing."
            ) from None

    @cached_property
    def _cipher(self) -> AESGCM:
        given = self._settings.secret_key
        words = (
            given.get_secret_value() if given else _key_of(self._settings.data_dir.absolute() / "secrets" / "sealing")
        )
        return AESGCM(hashlib.sha256(b"lorry sealing key\0" + words.encode()).digest())


def _key_of(file: Path) -> str:
    """The key in the file. Of several processes that find none, one's key is linked in and all read that one."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = file.with_name(f".sealing-{os.getpid()}-{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as handle:
            handle.write(secrets.token_hex(32) + "\n")
            handle.flush()
            os.fsync(handle.fileno())
        try:
            os.link(draft, file)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return file.read_text("ascii").strip()
