"""Webhook stories on the real database."""

from __future__ import annotations

import pytest

from registry.secrets import SecretBox
from registry.settings import Settings
from tests.hooks import Hooks
from tests.world import World


@pytest.fixture
def hooks(world: World, settings: Settings) -> Hooks:
    return Hooks(world, SecretBox(settings))
