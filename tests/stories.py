"""How many random stories a property test plays: 100 of each, or 10,000 with `LORRY_HYPOTHESIS=long`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

LONG = os.environ.get("LORRY_HYPOTHESIS") == "long"
stories = settings(
    max_examples=10_000 if LONG else 100, deadline=None, suppress_health_check=list(HealthCheck) if LONG else []
)
"""Goes above `@given`."""
