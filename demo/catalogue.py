"""Owns the vocabulary of the synthetic tickets: names, goods, problems, wishes and sentence patterns.

Plain data, read by `demo.tickets`. Every pattern takes the fields name, order, item, problem and wish; the Korean ones
also take `particle`, the subject particle that fits the item. The adapters in `demo/adapters` learned these words:
change one and the adapters must be trained again.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """What one tenant's tickets are made of; a pair is (words in the ticket, word in the summary)."""

    names: tuple[str, ...]
    items: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]
    wishes: tuple[tuple[str, str], ...]
    patterns: tuple[str, ...]


_ENGLISH_NAMES = ("Mina", "Joon", "Alice", "Bob", "Priya", "Chen", "Omar", "Lena")
_ENGLISH_PROBLEMS = (
    ("arrived broken", "damaged"),
    ("never arrived", "missing"),
    ("is the wrong colour", "wrong item"),
    ("stopped working after two days", "defective"),
    ("was charged twice", "billing"),
)
_ENGLISH_WISHES = (
    ("wants a refund", "refund"),
    ("wants a replacement", "replacement"),
    ("asks for a call back", "callback"),
    ("wants to cancel the order", "cancellation"),
)
_ENGLISH_PATTERNS = (
    "Hello, my name is {name}. I ordered a {item} (order {order}) last week and it {problem}. "
    "I am upset because it was a gift. {name} {wish}. Thank you.",
    "Hi team, order {order} here. The {item} I bought {problem}. I have tried to contact you twice. "
    "Please help. Customer {name} {wish}.",
    "Phone note: {name} called about a {item}. It {problem}. The order number is {order}. {name} {wish} "
    "and was polite about it.",
)


# A small model learns to choose a capitalized first word quickly only when the ticket names it: these problems do.
_NAMED_PROBLEMS = (
    ("arrived damaged", "damaged"),
    ("is still missing", "missing"),
    ("is the wrong colour", "wrong colour"),
    ("turned out to be defective", "defective"),
    ("has a billing error", "billing"),
)


def _english(problems: tuple[tuple[str, str], ...], *items: str) -> Vocabulary:
    return Vocabulary(_ENGLISH_NAMES, items, problems, _ENGLISH_WISHES, _ENGLISH_PATTERNS)


HOUSEHOLD = _english(_NAMED_PROBLEMS, "kettle", "toaster", "blender", "lamp", "heater", "mixer", "clock", "mirror")
OUTDOOR = _english(_ENGLISH_PROBLEMS, "jacket", "tent", "backpack", "stove", "compass", "helmet", "lantern", "bottle")
OFFICE = _english(
    _ENGLISH_PROBLEMS, "laptop", "printer", "router", "headset", "monitor", "keyboard", "camera", "scanner"
)

KOREAN = Vocabulary(
    names=("김민아", "이준호", "박서연", "최지우"),
    items=("전화기", "시계", "가방", "의자", "신발", "우산"),
    problems=(("파손됐어요", "파손"), ("고장 났어요", "고장"), ("아직 안 왔어요", "미배송")),
    wishes=(("환불해 주세요", "환불"), ("교환해 주세요", "교환"), ("전화 주세요", "전화")),
    patterns=(
        "{name}입니다. 주문 {order}번 {item}{particle} {problem}. {wish}.",
        "안녕하세요. {item}{particle} {problem}. 주문 번호는 {order}입니다. {wish}.",
    ),
)
