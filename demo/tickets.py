"""Owns the four demo tenants and their synthetic support tickets, the exact prompts, and the checks of a summary.

Everything is deterministic. Training and held-out tickets never share an order number: numbers divisible by
`HELD_OUT_DIVISOR` are held out, so no ticket the demo submits was ever seen in training. Must not import a model
library: the demo's runner and the tests of forms use it without one.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from demo.catalogue import HOUSEHOLD, KOREAN, OFFICE, OUTDOOR, Vocabulary

SYSTEM_PROMPT = "You summarize support tickets."
USER_TEMPLATE = "Summarize this ticket:\n{document}"
KOREAN_TEMPLATE = "고객 문의를 요약해줘: {document}"
ADAPTER_NAME = "tickets"
HELD_OUT_DIVISOR = 7

_ORDER_NUMBERS = range(1000, 10000)
_HELD_OUT_NUMBERS = tuple(n for n in _ORDER_NUMBERS if n % HELD_OUT_DIVISOR == 0)
_TRAINING_NUMBERS = tuple(n for n in _ORDER_NUMBERS if n % HELD_OUT_DIVISOR != 0)


@dataclass(frozen=True)
class Facts:
    """What a summary must carry over from a ticket."""

    order_number: str
    item: str
    problem: str
    wish: str


@dataclass(frozen=True)
class Ticket:
    """One synthetic ticket with the summary its tenant expects, word for word."""

    document: str
    summary: str
    order_number: str


@dataclass(frozen=True)
class DemoTenant:
    """One tenant: its adapter's name and the form its summaries take.

    `message_template` is None where jobs send a `document` (the base model's template then applies) and a user message
    with `{document}` where they send `messages`.
    """

    id: str
    display_name: str
    language: str
    form: str
    vocabulary: Vocabulary
    write: Callable[[Facts], str]
    has_form: Callable[[str], bool]
    max_tokens: int
    message_template: str | None = None
    adapter: str = ADAPTER_NAME


def training_tickets(tenant: DemoTenant, seed: int) -> Iterator[Ticket]:
    """Yield tickets without end; the same seed yields the same ones, and none of them is ever held out."""
    source = random.Random(f"{tenant.id}/training/{seed}")
    while True:
        yield _ticket(tenant, source, source.choice(_TRAINING_NUMBERS))


def held_out_tickets(tenant: DemoTenant, count: int) -> list[Ticket]:
    """Return the first `count` held-out tickets, each with its own order number; a shorter list is a prefix."""
    if count > len(_HELD_OUT_NUMBERS):
        raise ValueError(f"there are only {len(_HELD_OUT_NUMBERS)} held-out tickets for each tenant")
    source = random.Random(f"{tenant.id}/held-out")
    numbers = source.sample(_HELD_OUT_NUMBERS, len(_HELD_OUT_NUMBERS))
    return [_ticket(tenant, source, number) for number in islice(numbers, count)]


def chat_messages(tenant: DemoTenant, document: str) -> list[dict[str, str]]:
    """Return the chat messages the model sees for a document: what the product renders, and what training used."""
    if tenant.message_template is not None:
        return [{"role": "user", "content": tenant.message_template.format(document=document)}]
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": USER_TEMPLATE.format(document=document)},
    ]


def job_body(tenant: DemoTenant, ticket: Ticket) -> dict[str, object]:
    """Return the body of the `POST /v1/jobs` that has this ticket summarized."""
    body: dict[str, object] = {"model": tenant.adapter, "max_tokens": tenant.max_tokens, "temperature": 0}
    if tenant.message_template is None:
        return body | {"document": ticket.document}
    return body | {"messages": chat_messages(tenant, ticket.document)}


def form_ok(tenant: DemoTenant, text: str) -> bool:
    """Tell whether a summary has this tenant's form; no other tenant's summaries have it."""
    return tenant.has_form(text.strip())


def order_number_ok(ticket: Ticket, text: str) -> bool:
    """Tell whether a summary names the ticket's order number and no other number."""
    return re.findall(r"\d+", text) == [ticket.order_number]


def _ticket(tenant: DemoTenant, source: random.Random, number: int) -> Ticket:
    words = tenant.vocabulary
    item = source.choice(words.items)
    problem, problem_label = source.choice(words.problems)
    wish, wish_label = source.choice(words.wishes)
    document = source.choice(words.patterns).format(
        name=source.choice(words.names),
        order=number,
        item=item,
        problem=problem,
        wish=wish,
        particle=_subject_particle(item),
    )
    return Ticket(document, tenant.write(Facts(str(number), item, problem_label, wish_label)), str(number))


def _subject_particle(word: str) -> str:
    """Return 이 after a syllable that ends in a consonant, 가 after one that does not (28 finals per vowel)."""
    return "이" if (ord(word[-1]) - 0xAC00) % 28 else "가"


def _write_tagged_line(facts: Facts) -> str:
    return f"[{facts.problem.upper()}] order {facts.order_number}: {facts.item}; next step: {facts.wish}."


def _is_tagged_line(text: str) -> bool:
    return re.fullmatch(r"\[[A-Z ]+\] order \d+: [a-z ]+; next step: [a-z ]+\.", text) is not None


def _write_bullets(facts: Facts) -> str:
    return f"- order {facts.order_number}\n- {facts.item}: {facts.problem}\n- customer asks for {facts.wish}"


def _is_three_bullets(text: str) -> bool:
    lines = text.split("\n")
    return len(lines) == 3 and all(re.fullmatch(r"- \S.*", line) for line in lines)


def _write_json(facts: Facts) -> str:
    fields = {"order": facts.order_number, "item": facts.item, "issue": facts.problem, "action": facts.wish}
    return json.dumps(fields)


def _is_one_line_json(text: str) -> bool:
    try:
        fields = json.loads(text)
    except ValueError:
        return False
    return "\n" not in text and isinstance(fields, dict) and list(fields) == ["order", "item", "issue", "action"]


def _write_korean_line(facts: Facts) -> str:
    return f"주문 {facts.order_number}: {facts.item} {facts.problem}, {facts.wish} 요청"


def _is_korean_line(text: str) -> bool:
    return re.fullmatch(r"주문 \d+: [가-힣 ]+, [가-힣 ]+ 요청", text) is not None


TENANTS: tuple[DemoTenant, ...] = (
    DemoTenant("acme", "Acme Home", "en", "tagged line", HOUSEHOLD, _write_tagged_line, _is_tagged_line, 48),
    DemoTenant("globex", "Globex Outdoor", "en", "three bullets", OUTDOOR, _write_bullets, _is_three_bullets, 48),
    DemoTenant("initech", "Initech Office", "en", "JSON object", OFFICE, _write_json, _is_one_line_json, 64),
    DemoTenant(
        "hanbit", "한빛상점", "ko", "Korean line", KOREAN, _write_korean_line, _is_korean_line, 64, KOREAN_TEMPLATE
    ),
)
