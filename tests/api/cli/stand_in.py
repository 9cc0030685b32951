"""A stand-in for one process of a stack, for tests of the runner: `python stand_in.py ROLE [DEPLOYMENT]`.

It notes when it starts, is asked to stop and ends, one line each in `events` under the data directory.
"""

from __future__ import annotations

import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import psycopg

from registry import presence
from registry.db import SYSTEM_ROLE, Database
from registry.settings import get_settings

ROLE = sys.argv[1]
SETTINGS = get_settings()
asked = threading.Event()


def note(what: str) -> None:
    with (SETTINGS.data_dir / "events").open("a") as events:
        events.write(f"{ROLE} {what}\n")


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


def serve(port: int) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def be_a_worker(deployment: str) -> None:
    engine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    (SETTINGS.data_dir / "engine.pid").write_text(str(engine.pid))
    database = Database(SETTINGS.resolved_database_url, SYSTEM_ROLE)
    with database.transaction() as session:
        row = presence.register(session, "stand-in", deployment, socket.gethostname(), os.getpid(), 1)
        presence.become(session, row, "ready")


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    note("started")
    if ROLE == "api":
        serve(SETTINGS.api_port)
    elif ROLE == "flower":
        serve(SETTINGS.flower_port)
    elif ROLE == "gpu-worker":
        be_a_worker(sys.argv[2])
    asked.wait()
    note("asked")
    time.sleep(float(os.environ.get("STAND_IN_DRAIN_S", "0.3")))
    psycopg.connect(SETTINGS.resolved_database_url.replace("+psycopg", "")).close()
    note("ended")


if __name__ == "__main__":
    main()
