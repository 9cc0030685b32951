"""A user's webhook receiver, as far as OpenAI's package helps with it. Runs where only that package is installed."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai
from openai import OpenAI


class Receiver:
    """Verifies each delivery with the client and keeps the event; a forged copy of it must not pass."""

    def __init__(self, client: OpenAI, port: int) -> None:
        self.secret = ""
        self.events: list[Any] = []
        self.forged: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                headers = dict(self.headers.items())
                receiver.events.append(client.webhooks.unwrap(body, headers, secret=receiver.secret))
                try:
                    client.webhooks.unwrap(body.replace("job", "jab"), headers, secret=receiver.secret)
                except openai.InvalidWebhookSignatureError as error:
                    receiver.forged.append(type(error).__name__)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Quiet: the output is the report."""

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Free the port."""
        self._server.shutdown()
        self._server.server_close()
