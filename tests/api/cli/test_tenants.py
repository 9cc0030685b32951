"""`lorry tenants`."""

from __future__ import annotations

import json

from tests.api.cli.conftest import Lorry


def test_a_tenant_that_was_made_is_listed(lorry: Lorry) -> None:
    assert lorry("tenants", "create", "acme", "--name", "Acme [bold]", "--weight", "2.5").status == 0
    (tenant,) = json.loads(lorry("tenants", "list", "--json").out)
    assert (tenant["id"], tenant["name"], tenant["weight"]) == ("acme", "Acme [bold]", 2.5)
    assert "Acme [bold]" in lorry("tenants", "list").out


def test_the_name_is_the_id_unless_one_is_given(lorry: Lorry) -> None:
    lorry("tenants", "create", "acme")
    assert json.loads(lorry("tenants", "list", "--json").out)[0]["name"] == "acme"


def test_a_taken_id_is_refused_with_its_code(lorry: Lorry) -> None:
    lorry("tenants", "create", "acme")
    answer = lorry("tenants", "create", "acme")
    assert answer.status == 1
    assert "[conflict]" in answer.err


def test_an_id_that_is_no_slug_is_refused(lorry: Lorry) -> None:
    answer = lorry("tenants", "create", "No Slug")
    assert answer.status == 1
    assert "[invalid_value]" in answer.err


def test_an_empty_list_says_how_to_begin_beside_the_result(lorry: Lorry) -> None:
    answer = lorry("tenants", "list")
    assert answer.out == ""
    assert "lorry tenants create" in answer.err
    assert json.loads(lorry("tenants", "list", "--json").out) == []


def test_limits_are_shown_set_one_by_one_and_reset(lorry: Lorry) -> None:
    lorry("tenants", "create", "acme")

    def shown(*options: str) -> dict[str, int]:
        rows = json.loads(lorry("tenants", "limits", "acme", "--json", *options).out)
        assert {row["limit"]: row["used"] for row in rows if row["used"] is not None} == {
            "queued_jobs": 0,
            "stored_bytes": 0,
            "tokens_per_day": 0,
        }
        return {row["limit"]: row["value"] for row in rows}

    defaults = shown()
    assert shown("--queued-jobs", "7") == defaults | {"queued_jobs": 7}
    assert shown("--posts-per-minute", "9") == defaults | {"queued_jobs": 7, "posts_per_minute": 9}
    assert shown("--reset", "--tokens-per-day", "1") == defaults | {"tokens_per_day": 1}
    assert shown("--reset") == defaults


def test_limits_of_nobody_are_refused(lorry: Lorry) -> None:
    assert "[not_found]" in lorry("tenants", "limits", "nobody", "--queued-jobs", "1").err
