"""What is said about a batch as a whole."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from registry.batches.options import BatchCreate, BatchOptions, window_of


@pytest.mark.parametrize(
    ("text", "hours"), [("24h", 24), ("1h", 1), ("168h", 168), ("1d", 24), ("7d", 168), ("100h", 100)]
)
def test_a_window_is_hours_or_days(text: str, hours: int) -> None:
    assert window_of(text) == timedelta(hours=hours)


@pytest.mark.parametrize(
    "text", ["", "0h", "169h", "8d", "24", "h", "24H", "1.5h", "-1h", "24h ", "٢h", "99999h", "1m"]
)
def test_other_windows_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="from 1h to 168h"):
        window_of(text)
    with pytest.raises(ValidationError):
        BatchOptions(completion_window=text)


def test_bad_lines_fail_the_batch_unless_told_otherwise_in_either_way() -> None:
    assert not BatchOptions().skip
    assert BatchOptions(on_bad_line="skip").skip
    assert BatchOptions(metadata={"lorry.on_bad_line": "skip"}).skip
    assert not BatchOptions(on_bad_line="fail", metadata={"lorry.on_bad_line": "skip"}).skip


def test_null_means_not_given() -> None:
    names = ("metadata", "output_expires_after", "on_bad_line", "completion_window", "dry_run")
    named: dict[str, Any] = dict.fromkeys(names)
    assert BatchOptions(**named) == BatchOptions()


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"lorry.on_bad_line": "ignore"}},
        {"metadata": {f"k{n}": "v" for n in range(17)}},
        {"metadata": {"k" * 65: "v"}},
        {"metadata": {"": "v"}},
        {"metadata": {"k": "v" * 513}},
        {"metadata": {"k": "a\0b"}},
        {"metadata": {"k\ud800": "v"}},
        {"metadata": {"k": 1}},
        {"on_bad_line": "ignore"},
        {"output_expires_after": {"anchor": "last_active_at", "seconds": 3600}},
        {"output_expires_after": {"anchor": "created_at", "seconds": 3599}},
        {"dry_run": "yes"},
        {"priority": 1},
    ],
    ids=str,
)
def test_what_is_not_allowed_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        BatchOptions(**fields)


@pytest.mark.parametrize("endpoint", ["/v1/embeddings", "/v1/jobs", "v1/completions", None])
def test_only_two_endpoints_are_served_from_files(endpoint: Any) -> None:
    with pytest.raises(ValidationError):
        BatchCreate(input_file_id="file-1", endpoint=endpoint)
