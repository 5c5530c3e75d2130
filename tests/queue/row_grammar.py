"""Grammar of rows: whatever a producer can pass to fq_enqueue, ordinary values, extremes and nonsense."""

import json
import random
from dataclasses import astuple, dataclass
from typing import Any

import psycopg

_LAST = 253402300799999999
_TEXTS = (
    "a", "customer-1", "日本", "naïve “quotes”", "\U0001f600", "two\nlines", "\x1b[2Jclear",
    "'; drop table fq_message; --", "a\\b", "%s %(x)s :y",
    "\u202eright", "\ufeff", "\x01\x7f", " ", "null", "ß" * 256, "x" * 512,
    "x" * 513, "", "\ud800",
)  # fmt: skip
_NUMBERS = (
    *(0, -1, 1, 2**31 - 1, -(2**31), 2**31, 2**63 - 1, -(2**63), 2**64),
    *(_LAST, _LAST + 1, 10**15, 3153600000000000),
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


_TYPES = (
    "text[]", "text[]", "bytea[]", "jsonb[]", "bigint[]", "bigint[]", "integer[]", "text[]", "integer[]", "text[]",
)  # fmt: skip
_NAMES = ("channels", "kinds", "contents", "headers", "delays", "ats", "priorities", "keys", "max_attempts")
_CALL = "select * from fq_enqueue('documents', {})".format(
    ", ".join(f"p_{name} => array[%s]::{type_}" for name, type_ in zip((*_NAMES, "on_duplicates"), _TYPES, strict=True))
)


def send(connection: psycopg.Connection[object], row: Row) -> bool:
    """Pass a row as SQL; whether it was taken. A refusal is in words of ours or of the parser of a value."""
    try:
        connection.execute(_CALL, astuple(row))
    except (psycopg.DataError, UnicodeEncodeError, psycopg.errors.StatementTooComplex):
        return False
    except psycopg.Error as error:
        if error.sqlstate != "QF001":
            raise AssertionError(f"{row!r:.500} is refused by {error}") from error
        return False
    return True


class Grammar:
    """Rows from a seed: the same seed makes the same rows.

    Args:
        seed: The seed.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 - rows of tests

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
