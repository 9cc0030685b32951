"""How many unclaimed messages a deployment's queue should hold: pure, from what was claimed between two looks.

Few, so that who comes next is decided late and a newcomer does not wait behind messages already sent; enough that free
threads never run dry before the next look.
"""

from __future__ import annotations

from registry.backlog import Load

MIN_UNCLAIMED = 8
"""A freed thread finds work at once, even when all others are busy."""
MAX_UNCLAIMED = 200
"""What a deployment of many fast workers comes to."""
FIRST_UNCLAIMED = 64
"""What an idle deployment is sent at once."""
MAX_AHEAD = 64
"""What newcomers are sent beside that, when there are any."""
HEADROOM = 1.8
"""Over what was claimed since the last look: looks are not evenly spaced."""
SLOWEST_FALL = 0.7
"""A look that saw little claimed does not empty the queue at once."""


class Flow:
    """One deployment's queue, looked at once a tick."""

    def __init__(self) -> None:
        self._most = FIRST_UNCLAIMED
        self._left_then = 0

    def wanted(self, load: Load) -> int:
        """How many more jobs the queue should get now. Counts on their being sent."""
        self._most = self._adapted(load)
        free = load.capacity - load.running - load.dispatched
        target = max(MIN_UNCLAIMED, min(free + load.dispatched, self._most))
        more = max(0, target - load.dispatched) if load.has_queued else 0
        self._left_then = load.dispatched + more
        return more

    def ahead(self, load: Load) -> int:
        """How many jobs of tenants that come back from idleness may be sent beyond that: as if nothing else was."""
        return max(0, min(MAX_AHEAD, load.capacity - self._left_then)) if load.has_queued else 0

    def sent(self, more: int) -> None:
        """So many were sent beyond what `wanted` said."""
        self._left_then += more

    def _adapted(self, load: Load) -> int:
        if load.dispatched == 0:
            # Idle: send at once what it can take. Busy and run dry: it takes more than it was given.
            return FIRST_UNCLAIMED if load.running == 0 else min(MAX_UNCLAIMED, 2 * self._most)
        claimed = max(0, self._left_then - load.dispatched)
        needed = int(HEADROOM * claimed) + MIN_UNCLAIMED
        return min(MAX_UNCLAIMED, max(needed, int(SLOWEST_FALL * self._most)))
