"""Wire forms: the same objects in requests, answers, batch lines and webhooks. Texts are checked here, once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError
from sqlalchemy import Row

from registry import explanations, ids, structured
from registry.states import status_for_tenant


def _storable(text: str) -> str:
    """PostgreSQL holds neither NUL nor lone surrogates: refuse them by name, never with a 5xx."""
    if "\x00" in text:
        raise PydanticCustomError("invalid_text", "contains a NUL character, which cannot be stored")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError(
            "invalid_text", "contains half of a surrogate pair, which is not valid text"
        ) from None
    return text


Text = Annotated[str, AfterValidator(_storable)]
ShortText = Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_storable)]


class Strict(BaseModel):
    """Unknown fields are refused by name, `true` is no number, and errors never repeat the input."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Message(Strict):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: Text


class NamedSchema(Strict):
    """A JSON schema in OpenAI's wrapping. The output always follows it; `strict` is accepted and changes nothing."""

    name: ShortText
    description: Text | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None

    @field_validator("schema_")
    @classmethod
    def _served(cls, schema: dict[str, Any]) -> dict[str, Any]:
        structured.json_schema_text(schema)
        return schema


class ResponseFormat(Strict):
    """What the output has to be: any text, any JSON object, or JSON that follows a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None

    @model_validator(mode="after")
    def _schema_where_named(self) -> ResponseFormat:
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise ValueError("json_schema goes with the type json_schema, and with no other")
        return self

    @property
    def schema_text(self) -> str | None:
        """The schema as the engine takes it; None for any text."""
        if self.json_schema is not None:
            return structured.json_schema_text(self.json_schema.schema_)
        return structured.ANY_OBJECT if self.type == "json_object" else None


OnOverflow = Literal["error", "truncate", "map_reduce"]


class JobCreate(Strict):
    """A job as a tenant submits it: exactly one of `document`, `messages`, `prompt`."""

    model: ShortText
    document: Text | None = Field(None, min_length=1)
    messages: tuple[Message, ...] | None = Field(None, min_length=1, max_length=256, strict=False)
    prompt: Text | None = Field(None, min_length=1)
    base_model: ShortText | None = None
    max_tokens: int | None = Field(None, ge=1, le=1_000_000)
    temperature: float = Field(0.0, ge=0, le=2, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    stop: ShortText | Annotated[tuple[ShortText, ...], Field(max_length=16, strict=False)] = ()
    seed: int | None = Field(None, ge=0, lt=2**63)
    response_format: ResponseFormat | None = None
    on_overflow: OnOverflow = "error"
    metadata: dict[ShortText, Annotated[str, Field(max_length=512), AfterValidator(_storable)]] = Field(
        default_factory=dict, max_length=16
    )
    custom_id: ShortText | None = None
    webhook_url: Annotated[str, Field(min_length=1, max_length=2048)] | None = None

    @model_validator(mode="after")
    def _one_input(self) -> JobCreate:
        given = [name for name in ("document", "messages", "prompt") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of document, messages, prompt (got {', '.join(given) or 'none'})")
        if self.on_overflow != "error" and self.document is None:
            raise ValueError("on_overflow: only a document can be shortened or divided")
        return self

    @property
    def body(self) -> dict[str, Any]:
        """What `prompts.PromptFormat` takes."""
        if self.messages is not None:
            return {"messages": [m.model_dump() for m in self.messages]}
        return {"prompt": self.prompt} if self.prompt is not None else {"document": self.document}

    @property
    def stops(self) -> list[str]:
        """`stop` as a list."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop)


class Swap(BaseModel):
    """What a job's adapter cost it: `wait_ms` is this job's own wait, the other times are the swap's."""

    state: Literal["hot", "warm", "cold"] = "hot"
    fetch_ms: float = 0.0
    load_ms: float = 0.0
    activate_ms: float = 0.0
    wait_ms: float = 0.0
    evicted: str | None = None
    shared_by: int = 0
    stalled_ms: float = 0.0


class RunningBatch(BaseModel):
    """How full the engine was when the job entered it, itself included."""

    jobs: int
    adapters: int


class Timing(BaseModel):
    """Where a job's time went, in ms (design section 9). `swap` is null for the bare base model."""

    queued_ms: float
    held_ms: float
    swap: Swap | None
    prefill_ms: float
    decode_ms: float
    other_ms: float
    total_ms: float
    running_batch: RunningBatch


class Usage(BaseModel):
    """Tokens of a finished job."""

    input_tokens: int
    output_tokens: int
    total_tokens: int


class Overflow(BaseModel):
    """What was done to a document that was too long: its middle cut out, or read in `parts`, `levels` times over."""

    strategy: Literal["truncate", "map_reduce"]
    dropped_tokens: int | None = None
    parts: int | None = None
    levels: int | None = None


class JobError(BaseModel):
    """Why a job failed."""

    code: str
    message: str


class Output(BaseModel):
    """What the model wrote."""

    text: str
    finish_reason: Literal["stop", "length"]


class JobView(BaseModel):
    """A job as its tenant reads it."""

    id: str
    object: Literal["job"] = "job"
    status: Literal["queued", "running", "succeeded", "failed", "cancelled", "expired"]
    model: str
    adapter_version: int | None
    custom_id: str | None
    metadata: dict[str, str]
    created_at: int
    started_at: int | None
    finished_at: int | None
    output: Output | None
    usage: Usage | None
    error: JobError | None
    timing: Timing | None
    overflow: Overflow | None = None
    waiting_for: str | None = None


def job_view(row: Row[Any] | Mapping[str, Any]) -> JobView:
    """The view of a row of `registry.jobs.select_views`."""
    get = row if isinstance(row, Mapping) else row._mapping
    used = get["prompt_tokens"] is not None and get["output_tokens"] is not None
    return JobView(
        id=ids.to_wire("job", get["id"]),
        status=status_for_tenant(get["state"], get["started_at"]),
        model=get["model"],
        adapter_version=get["adapter_version"],
        custom_id=get["custom_id"],
        metadata=get["metadata"] or {},
        created_at=_seconds(get["created_at"]),
        started_at=_seconds(get["started_at"]) if get["started_at"] else None,
        finished_at=_seconds(get["finished_at"]) if get["finished_at"] else None,
        output=Output(text=get["text"], finish_reason=get["finish_reason"]) if get["text"] is not None else None,
        usage=_usage(get["prompt_tokens"], get["output_tokens"]) if used else None,
        error=_error(get["error_code"], get["error_message"]) if get["error_code"] else None,
        timing=Timing.model_validate(get["timing"]) if get["timing"] else None,
        overflow=Overflow.model_validate(get["overflow"]) if get["overflow"] else None,
        waiting_for=explanations.waiting_for(
            *(get[name] for name in ("state", "started_at", "waiting_reason", "crashes")),
            in_parts=get["waits_for_parts"],
            rescued=get["rescued"],
        ),
    )


def _usage(prompt_tokens: int, output_tokens: int) -> Usage:
    return Usage(input_tokens=prompt_tokens, output_tokens=output_tokens, total_tokens=prompt_tokens + output_tokens)


def _error(code: str, message: str | None) -> JobError:
    return JobError(code=code, message=message or "The job failed.")


def _seconds(moment: datetime) -> int:
    return int(moment.timestamp())
