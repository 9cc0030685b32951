"""`python -m tests.workers.sender_nursery PORT`: forks a sender for each delivery id on stdin, to be killed at will.

The parent only imports and forks: a hundred senders cost what a hundred forks cost. It prints each child's pid.
"""

from __future__ import annotations

import gc
import os
import sys
import uuid

from registry.db import SYSTEM_ROLE, Database
from registry.secrets import SecretBox
from registry.settings import get_settings
from tests.receiver import rules_for
from workers.egress import Egress
from workers.webhooks import Sender


def main() -> None:
    """One child at a time, reaped before the next."""
    settings, rules = get_settings(), rules_for(int(sys.argv[1]))
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            database = Database(settings.resolved_database_url, SYSTEM_ROLE, pool_size=1)
            Sender(database, SecretBox(settings), Egress(rules)).deliver(uuid.UUID(line.strip()))
            os._exit(0)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
