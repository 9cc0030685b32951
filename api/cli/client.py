"""The API as a tenant's command sees it: over HTTP, with the tenant's key; never the database.

A request that got no answer, or one that says to come again, is repeated. Every POST carries an Idempotency-Key that
its repetitions share, so that it has its effect once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

import typer
from httpx2 import Client, Response, Timeout, TransportError

from api.cli.exits import ConnectionLost, Refused, UnusableInput
from api.cli.patience import Patience
from registry.ndjson import LineSplitter
from registry.settings import Settings, get_settings

NDJSON: Final = "application/x-ndjson"
SHORT_PATIENCE_S: Final = 5.0
"""For commands that somebody watches and can simply repeat."""
_TIMEOUT: Final = Timeout(60.0, connect=10.0)
_BODY_TIMEOUT: Final = Timeout(600.0, connect=10.0)
"""50,000 lines are checked, and for a dry run counted, before the answer begins."""
_MAX_LINE_BYTES: Final = 64 * 1024 * 1024
_PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Body:
    """Lines to send: a file that is sent from its beginning at every attempt."""

    file: IO[bytes]


class Api:
    """One connection pool for one command; a context manager."""

    def __init__(self, settings: Settings, *, patience_s: float, say: Callable[[str], None]) -> None:
        self.base_url = base_url(settings)
        self._patience = Patience(patience_s, say)
        self._client = Client(
            base_url=self.base_url,
            headers={"authorization": f"Bearer {_key(settings)}", "user-agent": "lorry-cli"},
            timeout=_TIMEOUT,
        )

    def get(self, path: str, **params: object) -> dict[str, Any]:
        """A JSON answer. Raises Refused, ConnectionLost."""
        given = {name: str(value) for name, value in params.items() if value is not None}
        return _object(self._answer(lambda: self._client.get(path, params=given)))

    def post(
        self,
        path: str,
        json: Mapping[str, Any] | None = None,
        *,
        params: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """The answer to a POST, done once however often it has to be sent. Raises Refused, ConnectionLost."""
        headers = {"idempotency-key": key or new_key()}
        return _object(self._answer(lambda: self._client.post(path, json=json, params=params, headers=headers)))

    def post_lines(self, path: str, body: Body, *, params: Mapping[str, str], key: str) -> dict[str, Any]:
        """Send NDJSON from a file. Raises Refused, ConnectionLost."""
        headers = {"idempotency-key": key, "content-type": NDJSON}

        def send() -> Response:
            body.file.seek(0)
            return self._client.post(path, content=body.file, params=params, headers=headers, timeout=_BODY_TIMEOUT)

        return _object(self._answer(send))

    def delete(self, path: str) -> None:
        """Raises Refused, ConnectionLost. A repetition that finds nothing has done its work before."""
        self._answer(lambda: self._client.delete(path))

    def lines(self, path: str, take: Callable[[bytes], None], place: Callable[[], Mapping[str, str]]) -> str:
        """Read NDJSON, a line at a time without its line feed, and again from `place()` whenever the way is cut. The
        answer is the batch's status before the last reading. Raises Refused, ConnectionLost."""
        while True:
            try:
                with self._client.stream("GET", path, params=dict(place())) as answer:
                    if answer.is_success:
                        for line in _split(answer):
                            take(line)
                            self._patience.fine()
                        self._patience.fine()
                        return str(answer.headers.get("lorry-batch-status", ""))
                    answer.read()
                    self._patience.wait(_to_wait_for(answer))
            except TransportError as lost:
                self._patience.wait(self._lost(lost))

    def _answer(self, attempt: Callable[[], Response]) -> Response:
        while True:
            try:
                answer = attempt()
            except TransportError as lost:
                self._patience.wait(self._lost(lost))
                continue
            if answer.is_success:
                self._patience.fine()
                return answer
            self._patience.wait(_to_wait_for(answer))

    def _lost(self, lost: TransportError) -> ConnectionLost:
        return ConnectionLost(f"{self.base_url} does not answer ({type(lost).__name__}).")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


@contextmanager
def tenant_api(patience_s: float = SHORT_PATIENCE_S) -> Iterator[Api]:
    """The API with the key and address of the settings. Raises UnusableInput without a key."""
    api = Api(get_settings(), patience_s=patience_s, say=lambda line: typer.echo(line, err=True))
    try:
        yield api
    finally:
        api.close()


def new_key() -> str:
    """An Idempotency-Key that nobody else has."""
    return f"lorry-cli-{uuid.uuid4().hex}"


def base_url(settings: Settings) -> str:
    """The address of `/v1`, whether or not the setting ends in it."""
    url = (settings.base_url or f"http://127.0.0.1:{settings.api_port}").rstrip("/")
    return f"{url.removesuffix('/v1')}/v1/"


def _key(settings: Settings) -> str:
    key = settings.api_key.get_secret_value().strip() if settings.api_key else ""
    if not key:
        raise UnusableInput("Set LORRY_API_KEY to your API key (and LORRY_BASE_URL to the server's address).")
    if not (key.isascii() and key.isprintable()):
        raise UnusableInput("LORRY_API_KEY has characters that no key has: copy the key again.")
    return key


def _split(answer: Response) -> Iterator[bytes]:
    # Not httpx's iter_lines: it also splits on U+2028 and others, which are ordinary characters in a text.
    splitter = LineSplitter(_MAX_LINE_BYTES)
    for block in answer.iter_bytes():
        for line in splitter.feed(block):
            if line.raw is None:
                raise Refused(f"A result is longer than {_MAX_LINE_BYTES} bytes.", "line_too_long")
            yield line.raw


def _to_wait_for(answer: Response) -> Refused:
    """The refusal, if waiting may help; else it is raised."""
    refusal = _refusal(answer)
    passing = answer.status_code in _PASSING or (answer.status_code == 409 and refusal.retry_after_s is not None)
    if not passing or answer.headers.get("x-should-retry") == "false":
        raise refusal
    return refusal


def _refusal(answer: Response) -> Refused:
    wait = answer.headers.get("retry-after", "")
    retry_after_s = int(wait) if wait.isdecimal() else None
    try:
        problem = answer.json()
        message, code = str(problem["error"]["message"]), str(problem["error"]["code"])
    except (ValueError, KeyError, TypeError):
        # Not Lorry: a proxy in between, or another server.
        message, code = f"The server answered {answer.status_code} and nothing to read.", str(answer.status_code)
    request_id = answer.headers.get("x-request-id")
    return Refused(f"{message}{f' (request {request_id})' if request_id else ''}", code, retry_after_s)


def _object(answer: Response) -> dict[str, Any]:
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refused("This is not Lorry's API: check LORRY_BASE_URL.", str(answer.status_code))
    return found
