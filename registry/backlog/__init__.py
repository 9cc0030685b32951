"""The backlog: how much waits where, and the pick, which decides over all of it who is sent next."""

from registry.backlog.loads import Length, Load, in_parts, lengths, loads, overdue
from registry.backlog.order import Pace
from registry.backlog.outlook import next_uses
from registry.backlog.pick import Picked, pick

__all__ = ["Length", "Load", "Pace", "Picked", "in_parts", "lengths", "loads", "next_uses", "overdue", "pick"]
