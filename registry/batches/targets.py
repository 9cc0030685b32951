"""What the lines of one batch name as `model`, each name looked up once: a version is pinned when its batch is made."""

from __future__ import annotations

from typing import Final

from registry import adapters
from registry.adapters import Resolved
from registry.db import Database
from registry.errors import BadRequest, InvalidField

MAX_MODELS: Final = 1000
"""Names a batch may use. It bounds the look-ups that an input of wrong names can cause."""


class Targets:
    """The models of a batch of `tenant_id`, numbered in the order in which lines name them."""

    def __init__(self, database: Database, tenant_id: str) -> None:
        self._database = database
        self._tenant_id = tenant_id
        self._known: dict[tuple[str, str | None], int | BadRequest] = {}
        self.resolved: list[Resolved] = []

    def number(self, model: str, base_model: str | None) -> int:
        """The model's place in `resolved`. Raises what `adapters.resolve` does, or InvalidField above the limit."""
        wanted = (model, base_model)
        found = self._known.get(wanted)
        if found is None:
            if len(self._known) >= MAX_MODELS:
                raise InvalidField(f"A batch names at most {MAX_MODELS} models; split it.", param="model")
            found = self._known[wanted] = self._look_up(model, base_model)
        if isinstance(found, BadRequest):
            # A new one each time: an exception that is raised again and again holds on to every frame it went through.
            raise type(found)(found.message, param=found.param)
        return found

    def only_model(self) -> str | None:
        """The one name that all lines gave; None when they differ."""
        names = {model for (model, _), found in self._known.items() if isinstance(found, int)}
        return names.pop() if len(names) == 1 else None

    def _look_up(self, model: str, base_model: str | None) -> int | BadRequest:
        try:
            with self._database.transaction(self._tenant_id) as session:
                resolved = adapters.resolve(session, self._tenant_id, model, base_model)
        except BadRequest as error:
            return type(error)(error.message, param=error.param)
        self.resolved.append(resolved)
        return len(self.resolved) - 1
