"""Places where a process dies on purpose, named by LORRY_FAILPOINT: for the fault suite, never for an operator.

A fault that is to hit between two lines cannot be timed from outside. Unset, a place costs one comparison.
"""

from __future__ import annotations

import os

from registry.settings import get_settings

EXIT_CODE = 137
"""As the shell reports a SIGKILL: nothing is closed, nothing is flushed."""


def reach(name: str) -> None:
    """End the process here if this place is the one that was named."""
    if get_settings().failpoint == name:
        os._exit(EXIT_CODE)
