import json
import math
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlalchemy_fairqueue import BytesCodec, Codec, JsonCodec, PayloadError, Queue

_TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
_PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT
_PAYLOADS = st.recursive(_PLAIN, lambda inner: st.lists(inner) | st.dictionaries(_TEXT, inner))
_ITSELF: list[Any] = []
_ITSELF.append(_ITSELF)
_DEEP: Any = []
for _ in range(100_000):
    _DEEP = [_DEEP]


class _Level(IntEnum):
    HIGH = 3


class _Colour(StrEnum):
    RED = "red"


@given(_PAYLOADS)
def test_the_bytes_of_json(payload: object) -> None:
    """What can be encoded comes back as it was given. The content is what json writes: applications may compare it."""
    written = json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()
    assert JsonCodec().encode(payload) == written
    assert JsonCodec().decode(written) == payload


@pytest.mark.parametrize("factor", [1, -7, 1.5, 9.999999999999999])
def test_the_digits_of_a_float(factor: float) -> None:
    """Floats of all sizes have json's digits."""
    numbers = [factor * 10.0**power for power in range(-330, 308)]
    for number in [0.0, -0.0, *numbers]:
        assert JsonCodec().encode([number]) == json.dumps([number]).encode()


@pytest.mark.parametrize(
    ("payload", "back"),
    [((1, (2,)), [1, [2]]), (_Level.HIGH, 3), (_Colour.RED, "red"), ({"☃": "é"}, {"☃": "é"}), ("", ""), ({}, {})],
)
def test_kept_as_their_plain_kind(payload: object, back: object) -> None:
    """Tuples become lists, and enums of int and str their values."""
    assert JsonCodec().decode(JsonCodec().encode(payload)) == back


@pytest.mark.parametrize(
    ("payload", "path", "problem"),
    [
        (datetime.now(UTC), "$", "a datetime cannot be encoded as JSON"),
        ({"a": [{"b": uuid.uuid4()}]}, "$.a[0].b", "a UUID cannot be encoded"),
        ([1, Decimal("1.5")], "$[1]", "a Decimal cannot be encoded"),
        ({"x": iter(())}, "$.x", "a tuple_iterator cannot be encoded"),
        ({"x": [math.nan]}, "$.x[0]", "nan cannot be encoded"),
        (-math.inf, "$", "-inf cannot be encoded"),
        ({"a": {1: "x"}}, "$.a", "the key 1 is a int"),
        ({None: 1}, "$", "the key None is a NoneType"),
        ({"a": {(1, 2): 3}}, "$.a", "the key (1, 2) is a tuple"),
        ({"text": "a\x00b"}, "$.text", "NUL character"),
        ({"a\x00b": 1}, "$", "NUL character"),
        (["\ud800"], "$[0]", "lone surrogate"),
        ({"\udfff": 1}, "$", "lone surrogate"),
        ({"a.b": {"c d": {'"': {"1x": b""}}}}, '$["a.b"]["c d"]["\\""]["1x"]', "a bytes cannot be encoded"),
        ({"big": [10**5000]}, "$.big[0]", "too long to be read again"),
        (_ITSELF, "$", "nested too deeply or contains itself"),
        (_DEEP, "$", "nested too deeply or contains itself"),
    ],
)
def test_refused_with_the_path(payload: object, path: str, problem: str) -> None:
    """What cannot be kept is refused with the exact path of the first such value."""
    with pytest.raises(PayloadError) as caught:
        JsonCodec().encode(payload)
    assert caught.value.path == path
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"payload at {path}: ")


@dataclass
class _Page:
    number: int


_DAY = timedelta(days=1)


@pytest.mark.parametrize("value", [uuid.uuid4(), Decimal("1.5"), date(2026, 1, 1), _DAY, b"x", {1}, _Page(1)])
def test_what_jobs_convert_is_told(value: Any) -> None:
    """A job takes it as an argument, and the error of the codec says so; of other values it does not."""

    def take(given: object) -> None:
        assert given is not None

    take.__annotations__["given"] = type(value)
    job: Any = Queue("documents").job(take)
    assert job.prepare("a", value).payload.keys() == {"given"}
    with pytest.raises(PayloadError, match=r"or use a job \(@queue\.job\), which converts it"):
        JsonCodec().encode({"given": value})
    with pytest.raises(PayloadError, match=r"convert it, or give the queue JsonCodec\(default=...\)$"):
        JsonCodec().encode({"given": object()})


def test_longest_integers() -> None:
    """An integer is kept exactly if Python's default limit lets it be read again."""
    codec = JsonCodec()
    longest = 2**14_000 - 1
    assert codec.decode(codec.encode([longest, -longest])) == [longest, -longest]
    with pytest.raises(PayloadError):
        codec.encode(longest + 1)


def test_default_converts() -> None:
    """A default function gives words to what has none, also inside of what it gave before."""
    codec = JsonCodec(default=lambda value: str(value) if isinstance(value, uuid.UUID) else list(value))
    ident = uuid.UUID(int=7)
    assert codec.decode(codec.encode({"ids": {ident}})) == {"ids": [str(ident)]}


@pytest.mark.parametrize(
    ("default", "problem"),
    [
        (int.from_bytes, "default cannot convert a Fraction: cannot convert 'Fraction' object to bytes"),
        (lambda _: math.nan, "nan cannot be encoded"),
        (lambda value: value, "nested too deeply"),
    ],
)
def test_default_that_fails(default: Any, problem: str) -> None:
    """A default function that refuses, or gives something that cannot be encoded either, is a PayloadError."""
    with pytest.raises(PayloadError, match=problem):
        JsonCodec(default=default).encode({"a": Fraction(1, 2)})


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff", b"\xff\xfe1\x00", b"NaN", b"[Infinity]", b"1 2", b"[" * 100_000, b"9" * 5_000]
)
def test_not_json(content: bytes) -> None:
    """What is not JSON in UTF-8 is refused with its length and what to do."""
    with pytest.raises(PayloadError, match=rf"{len(content)} bytes are not JSON .*; give the queue the codec"):
        JsonCodec().decode(content)


def test_bytes() -> None:
    """BytesCodec keeps bytes, bytearrays and memoryviews as bytes, and refuses all else."""
    codec = BytesCodec()
    for payload in (b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")):
        assert codec.decode(codec.encode(payload)) == b"\x00\xff"
    for other in ("text", 1, None, [1]):
        with pytest.raises(PayloadError, match=f"got a {type(other).__name__}"):
            codec.encode(other)


def test_protocol() -> None:
    """Both codecs are what a queue asks for, and anything else with the two methods is too."""

    class Own:
        def encode(self, payload: Any) -> bytes:
            return repr(payload).encode()

        def decode(self, content: bytes) -> Any:
            return content

    assert all(isinstance(codec, Codec) for codec in (JsonCodec(), BytesCodec(), Own()))
    assert not isinstance(object(), Codec)
