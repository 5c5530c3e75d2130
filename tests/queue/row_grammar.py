"""Grammar of calls: whatever a producer can send, ordinary values, extremes and nonsense."""

import json
import random
from dataclasses import astuple, dataclass
from typing import Any

QUEUE = "documents"
"""The queue that most calls name."""
ARRAYS = (
    "channels", "kinds", "contents", "headers", "delays", "ats", "priorities", "keys", "max_attempts", "on_duplicates",
)  # fmt: skip
"""The arrays of fq_enqueue, in the order of the fields of a row."""
_TYPES = ("text", "text", "bytea", "jsonb", "bigint", "bigint", "integer", "text", "integer", "text")
_ENQUEUE = (
    "select * from jobs.fq_enqueue(%s, {}, p_policy => %s::jsonb, p_notify => %s, p_hold => %s::bigint[])".format(
        ", ".join(f"p_{name} => %s::{type_}[]" for name, type_ in zip(ARRAYS, _TYPES, strict=True))
    )
)
_OTHERS = (
    ("select * from jobs.fq_cancel(%s, %s::bigint[])", 2),
    ("select jobs.fq_max_backlog(%s, %s)", 2),
    ("select jobs.fq_hold_messages(%s::bigint[])", 1),
    ("select jobs.fq_version()", 0),
)
_LAST = 253402300799999999
_TEXTS = (
    "a", "customer-1", "日本", "naïve “quotes”", "\U0001f600", "two\nlines", "\x1b[2Jclear",
    "'; drop table fq_message; --", "a\\b", "%s %(x)s :y",
    "\u202eright", "\ufeff", "\x01\x7f", " ", "null", "ß" * 256, "x" * 512,
    "x" * 513, "", "\ud800",
)  # fmt: skip
_NUMBERS = (
    0,
    -1,
    1,
    2**31 - 1,
    -(2**31),
    2**31,
    2**63 - 1,
    -(2**63),
    2**64,
    _LAST,
    _LAST + 1,
    10**15,
    3153600000000000,
)
_JSON_NUMBERS = ("0", "-0", "1.5", "1e300", "1e-300", "-1e131071", "1e5000", "1e-16383", "9" * 5000, "1e400000")


@dataclass(frozen=True, slots=True)
class Row:
    """The arguments of one message, in the order of the arrays of fq_enqueue."""

    channel: str | None
    kind: str | None
    content: bytes | None
    headers: str | None
    delay: int | None
    at: int | None
    priority: int | None
    key: str | None
    max_attempts: int | None
    on_duplicate: str | None


@dataclass(frozen=True, slots=True)
class Call:
    """A statement that a producer sends: its text, its parameters, the queue that it names, and how many messages."""

    sql: str
    parameters: tuple[Any, ...]
    queue: str | None = QUEUE
    messages: int = 0


class Grammar:
    """Calls from a seed: the same seed makes the same calls.

    Args:
        seed: The seed.

    Attributes:
        ids: Messages that calls made, which others may name.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - rows of tests
        self.ids: list[int] = []

    def call(self) -> Call:
        """The next call: mostly one that enqueues one message."""
        pick = self.random.random()
        queue = self._some(self.text, [QUEUE], often=0.97)
        if pick > 0.95:
            return self._other(queue)
        rows = [self.row() for _ in range(1 if pick < 0.85 else self.random.randrange(13))]
        arrays: list[Any] = [list(column) for column in zip(*map(astuple, rows), strict=True)] or [[] for _ in ARRAYS]
        if pick > 0.93:
            which = self.random.randrange(len(arrays))
            arrays[which] = self.random.choice((None, arrays[which][1:], [*arrays[which], None]))
        policy = self._some(self.policy, [None], often=0.7)
        hold = self._some(self.numbers, [None], often=0.95)
        notify = self.random.choice((True, False, None))
        return Call(_ENQUEUE, (queue, *arrays, policy, notify, hold), queue, len(rows))

    def _other(self, queue: str | None) -> Call:
        """A call that enqueues nothing: cancel, look, lock."""
        sql, count = self.random.choice(_OTHERS)
        last = self.text() if "backlog" in sql else self.numbers()
        return Call(sql, ((queue, last) if count == 2 else (last,))[: count or None] if count else (), queue)

    def numbers(self) -> list[int | None]:
        """Ids of messages, of which there may be some."""
        some = self.random.sample(self.ids, min(len(self.ids), 2))
        return [*some, self.number(), *some[:1]]

    def policy(self) -> str | None:
        """A policy for channels that are new, as text of JSON."""
        fields = ("max_concurrency", "rate_interval", "rate_burst", "weight", "max_backlog", "drop_when_full", "x")
        given = {self.random.choice(fields): self.random.choice((1, 2, 50, True, None, self.number()))
                 for _ in range(self.random.randrange(3))}  # fmt: skip
        found: str | None = self._some(self.headers, [json.dumps(given)], often=0.9)
        return found

    def row(self) -> Row:
        """The next row. Most of its values are ordinary, so that many rows are taken."""
        some = self._some
        return Row(
            channel=some(self.text, [f"c{self.random.randrange(20)}"], often=0.7),
            kind=some(self.text, ["work"], often=0.7),
            content=some(self.content, [b"1", b"{}"], often=0.5),
            headers=some(self.headers, [None], often=0.4),
            delay=some(self.number, [None], often=0.9),
            at=some(self.number, [None], often=0.9),
            priority=some(self.number, [None], often=0.9),
            key=some(self.text, [None, f"k{self.random.randrange(5)}"], often=0.8),
            max_attempts=some(self.number, [None, 1, 2], often=0.9),
            on_duplicate=some(self.text, [None, "skip", "replace", "raise"], often=0.97),
        )

    def text(self) -> str | None:
        """A name, an error, a reason."""
        pick = self.random.random()
        if pick < 0.7:
            return self.random.choice(_TEXTS)
        if pick < 0.75:
            return None
        length = self.random.choice((1, 3, 40, 200))
        return "".join(chr(self.random.choice((0x41, 0xE9, 0x4E00, 0x1F300, 0x300)) + self.random.randrange(20))
                       for _ in range(length))  # fmt: skip

    def number(self) -> int | None:
        """A time, a priority, a count."""
        return self.random.choice((*_NUMBERS, self.random.randrange(-(2**40), 2**40), None))

    def content(self) -> bytes | None:
        """A content, which need not be what any codec writes."""
        return self.random.choice((
            b"", b"\x00", b"\xff\xfe", b"NaN", b"{", b'"\\ud800"', b"[" * 5000, b"9" * 5000, b"x" * 3000, None,
            self.random.randbytes(self.random.choice((1, 100, 9000, 200_000))),
        ))  # fmt: skip

    def headers(self) -> str | None:
        """Text of headers, mostly JSON."""
        pick = self.random.random()
        if pick < 0.15:
            return self.random.choice(("null", "1", "[]", '"text"', "{", "", '{"a": "\\u0000"}', '{"a": "\\ud800"}'))
        if pick < 0.3:
            depth = self.random.choice((10, 900, 1200, 6000))
            return "[" * depth + "]" * depth
        if pick < 0.5:
            number = self.random.choice(_JSON_NUMBERS)
            return '{"n": [' + ", ".join([number] * self.random.choice((1, 3, 50, 8190, 8300))) + "]}"
        if pick < 0.6:
            return json.dumps({"a": "x" * self.random.choice((10, 65_000, 65_528, 65_530, 300_000))})
        return json.dumps(self._value(3))

    def _value(self, depth: int) -> Any:
        if depth and self.random.random() < 0.6:
            if self.random.random() < 0.5:
                return [self._value(depth - 1) for _ in range(self.random.randrange(4))]
            return {self.random.choice(_TEXTS[:-1]): self._value(depth - 1) for _ in range(self.random.randrange(4))}
        return self.random.choice((None, True, 1, 1.5, *_TEXTS[:-1]))

    def _some(self, odd: Any, ordinary: list[Any], *, often: float) -> Any:
        return self.random.choice(ordinary) if self.random.random() < often else odd()
