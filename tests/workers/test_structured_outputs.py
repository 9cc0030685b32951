"""Outputs by a schema, on the real engine: they parse and fit; one that nothing fits harms its own request only."""

from __future__ import annotations

import asyncio
import json

import jsonschema_rs
import pytest

from registry.errors import InvalidGeneration
from registry.structured import json_schema_text
from tests.workers.engine_rig import Rig
from workers.generation import Generated

pytestmark = pytest.mark.engine

TICKET = {
    "type": "object",
    "properties": {
        "priority": {"enum": ["low", "high"]},
        "codes": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 9}, "maxItems": 2},
        # ASCII: a model of random weights also writes half characters, which are counted otherwise once decoded.
        "name": {"type": "string", "pattern": "^[a-z]{1,6}$"},
    },
    "required": ["priority", "codes", "name"],
    "additionalProperties": False,
}
IMPOSSIBLE = {"type": "integer", "minimum": 5, "maximum": 1}


def test_an_output_follows_its_schema_with_and_without_an_adapter_while_others_write_freely(vllm_rig: Rig) -> None:
    async def story() -> None:
        await vllm_rig.load(adapter := vllm_rig.adapter())
        schema = json_schema_text(TICKET)
        free, *bound = await asyncio.gather(
            vllm_rig.answer(max_tokens=8),
            vllm_rig.answer(max_tokens=200, json_schema=schema, temperature=1.0, seed=1),
            vllm_rig.answer(adapter, max_tokens=200, json_schema=schema, temperature=1.0, seed=2),
        )
        assert free.text == (await vllm_rig.answer(max_tokens=8)).text
        for answer in bound:
            assert answer.finish_reason == "stop"
            jsonschema_rs.validate(TICKET, json.loads(answer.text))

    vllm_rig.run(story())


def test_a_schema_that_nothing_fits_fails_its_own_request_by_its_code(vllm_rig: Rig) -> None:
    async def story() -> None:
        impossible = vllm_rig.answer(max_tokens=50, json_schema=json_schema_text(IMPOSSIBLE))
        refused, fine = await asyncio.gather(impossible, vllm_rig.answer(max_tokens=8), return_exceptions=True)
        assert isinstance(refused, InvalidGeneration)
        assert isinstance(fine, Generated)
        assert fine.text

    vllm_rig.run(story())
