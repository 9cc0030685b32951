"""The lines of a batch's output and error file: OpenAI's shape, in input order, made from the rows when asked for.

PostgreSQL writes the JSON, so that a file's size is a sum and not a download. Lines come in pages, each page in a short
transaction of its own: no session, and no old snapshot, waits for a slow reader.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import text
from sqlalchemy.orm import Session

from registry.db import Database

Content = Literal["output", "error"]

PAGE_LINES = 512
PAGE_BYTES = 1024 * 1024

_HEX = "replace(j.id::text, '-', '')"
# As `api/errors.py` would answer for the same code; a test compares the two.
_STATUS = """CASE WHEN j.error_code IN ('prompt_too_long', 'invalid_value') THEN 400
                  WHEN j.error_code = 'adapter_unavailable' THEN 409 ELSE 500 END"""

_OUTPUTS = f"""
SELECT j.line_no, json_build_object(
    'id', 'batch_req_' || {_HEX},
    'custom_id', j.custom_id,
    'response', CASE WHEN o.text IS NOT NULL THEN json_build_object(
        'status_code', 200,
        'request_id', 'job_' || {_HEX},
        'body', json_build_object(
            'id', CASE WHEN :completion THEN 'cmpl-' ELSE 'chatcmpl-' END || {_HEX},
            'object', CASE WHEN :completion THEN 'text_completion' ELSE 'chat.completion' END,
            'created', floor(extract(epoch FROM j.created_at))::bigint,
            'model', j.model,
            'choices', json_build_array(CASE
                WHEN :completion THEN json_build_object(
                    'index', 0, 'text', o.text, 'logprobs', NULL, 'finish_reason', j.finish_reason)
                ELSE json_build_object(
                    'index', 0, 'message', json_build_object('role', 'assistant', 'content', o.text, 'refusal', NULL),
                    'logprobs', NULL, 'finish_reason', j.finish_reason) END),
            'usage', json_build_object(
                'prompt_tokens', j.prompt_tokens,
                'completion_tokens', j.output_tokens,
                'total_tokens', j.prompt_tokens + j.output_tokens),
            'lorry', json_build_object('adapter_version', a.version, 'timing', j.timing))) END,
    'error', CASE WHEN o.text IS NULL THEN json_build_object(
        'code', 'purged', 'message', 'The texts of this line were deleted.') END,
    'lorry', json_build_object('line', j.line_no))::text AS line
FROM (
    SELECT * FROM jobs WHERE tenant_id = :tenant AND batch_id = :batch AND state = 'succeeded' AND line_no > :after
    ORDER BY line_no LIMIT :limit
) AS j
LEFT JOIN tenant_adapters a ON a.tenant_id = j.tenant_id AND a.adapter_id = j.adapter_id
LEFT JOIN LATERAL (
    SELECT text FROM job_outputs WHERE day = (j.created_at AT TIME ZONE 'UTC')::date AND job_id = j.id LIMIT 1
) AS o ON true
"""  # noqa: S608

_ERRORS = f"""
SELECT line_no, json_build_object(
    'id', 'batch_req_' || id,
    'custom_id', custom_id,
    'response', CASE WHEN state = 'failed' THEN json_build_object(
        'status_code', status,
        'request_id', request_id,
        'body', json_build_object('error', json_build_object(
            'message', message,
            'type', CASE WHEN status < 500 THEN 'invalid_request_error' ELSE 'server_error' END,
            'param', param,
            'code', code))) END,
    'error', CASE state
        WHEN 'cancelled' THEN json_build_object(
            'code', 'batch_cancelled', 'message', 'This request was cancelled before it ended.')
        WHEN 'expired' THEN json_build_object(
            'code', 'batch_expired', 'message', 'This request was not executed before the window passed.') END,
    'lorry', json_build_object('line', line_no))::text AS line
FROM (
    (SELECT line_no, {_HEX} AS id, 'job_' || {_HEX} AS request_id, custom_id, state, error_code AS code,
            coalesce(error_message, 'The job failed.') AS message, NULL AS param, {_STATUS} AS status
     FROM jobs j WHERE tenant_id = :tenant AND batch_id = :batch AND state IN ('failed', 'cancelled', 'expired')
       AND line_no > :after ORDER BY line_no LIMIT :limit)
    UNION ALL
    (SELECT line_no, replace(batch_id::text, '-', '') || '_' || line_no, NULL, custom_id, 'failed', code, message,
            param, 400
     FROM batch_bad_lines WHERE tenant_id = :tenant AND batch_id = :batch AND line_no > :after
     ORDER BY line_no LIMIT :limit)
) AS lines
ORDER BY line_no LIMIT :limit
"""  # noqa: S608

_SIZE = """
SELECT count(*) AS lines, coalesce(sum(octet_length(line) + 1), 0)::bigint AS bytes, max(line_no) AS last_line
FROM ({}) AS part"""
_PAGES = {"output": text(_OUTPUTS + "ORDER BY j.line_no"), "error": text(_ERRORS)}
_SIZES = {"output": text(_SIZE.format(_OUTPUTS)), "error": text(_SIZE.format(_ERRORS))}


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is of a file, up to `last_line`; None when there is no line."""

    lines: int
    bytes: int
    last_line: int | None


def size(
    session: Session, tenant_id: str, batch_id: uuid.UUID, endpoint: str, content: Content, *, after: int, limit: int
) -> Size:
    """The exact size of the next `limit` lines of a file, after the line with the number `after`."""
    values = _values(tenant_id, batch_id, endpoint) | {"after": after, "limit": limit}
    return Size(*session.execute(_SIZES[content], values).one())


def stream_output(database: Database, tenant_id: str, batch_id: uuid.UUID, endpoint: str) -> Iterator[bytes]:
    """The lines that succeeded, some at a time, each with its line feed."""
    return _stream(database, tenant_id, batch_id, endpoint, "output")


def stream_errors(database: Database, tenant_id: str, batch_id: uuid.UUID, endpoint: str) -> Iterator[bytes]:
    """The lines that failed, were cancelled or expired, and those refused at submission, each in its place."""
    return _stream(database, tenant_id, batch_id, endpoint, "error")


def _stream(
    database: Database, tenant_id: str, batch_id: uuid.UUID, endpoint: str, content: Content
) -> Iterator[bytes]:
    values = _values(tenant_id, batch_id, endpoint) | {"after": -1, "limit": PAGE_LINES}
    while True:
        page, last_line = _page(database, tenant_id, content, values)
        if last_line is None:
            return
        values["after"] = last_line
        yield page


def _page(database: Database, tenant_id: str, content: Content, values: dict[str, object]) -> tuple[bytes, int | None]:
    """Up to `PAGE_LINES` lines, fewer when they are long, and the number of the last."""
    page, last_line = bytearray(), None
    with database.transaction(tenant_id) as session:
        rows = session.execute(_PAGES[content], values, execution_options={"yield_per": 32})
        for row in rows:
            page += row.line.encode()
            page += b"\n"
            last_line = row.line_no
            if len(page) >= PAGE_BYTES:
                break
        rows.close()
    return bytes(page), last_line


def _values(tenant_id: str, batch_id: uuid.UUID, endpoint: str) -> dict[str, object]:
    return {"tenant": tenant_id, "batch": batch_id, "completion": endpoint == "/v1/completions"}
