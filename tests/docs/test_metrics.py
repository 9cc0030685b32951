"""docs/metrics.md says of every metric what the code says."""

from __future__ import annotations

from registry import metrics
from tests.docs import pages


def test_the_page_lists_exactly_the_metrics_there_are() -> None:
    families = {family.name: family for family in metrics.REGISTRY.collect()}
    rows = {row[0].removesuffix("_total"): row for row in pages.table(pages.read("metrics"), "All metrics")}

    assert rows.keys() == families.keys()
    assert {name: (row[1], row[3].removesuffix(" |")) for name, row in rows.items()} == {
        name: (family.type, family.documentation) for name, family in families.items()
    }


def test_labels_are_listed_and_name_nobody() -> None:
    labels = {vars(collector)["_name"]: vars(collector)["_labelnames"] for collector in collectors()}
    rows = {row[0].removesuffix("_total"): row[2] for row in pages.table(pages.read("metrics"), "All metrics")}

    assert {name: ", ".join(found) for name, found in labels.items()} == rows
    assert not {label for found in labels.values() for label in found} & {"tenant", "adapter", "job", "model", "worker"}


def collectors() -> list[object]:
    """The module's metrics."""
    return [value for value in vars(metrics).values() if hasattr(value, "_labelnames")]
