"""Messages of which something cannot be read: each costs itself, and none the others."""

from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import BytesCodec, PayloadError, Queue
from tests.fixtures.database import Database

# More digits than Python reads back, and deeper than it goes.
HEADERS = ['{"a": 1e5000}', "[" * 12_000 + "]" * 12_000]


def test_headers(engine: Engine, database: Database) -> None:
    """Headers that a producer in SQL gave spoil the payload of their own delivery and dead letter."""
    for number, headers in enumerate(HEADERS):
        queue = Queue(f"documents {number}")
        bad = queue.enqueue(engine, channel="a", payload=1, headers={"x": 1}).message_id
        queue.enqueue(engine, channel="a", payload=2, headers={"x": 2})
        database.execute("update fq_message set headers = cast(:h as jsonb) where id = :id", h=headers, id=bad)
        spoilt, good = queue.dequeue(engine, limit=2)
        assert (good.payload, good.headers) == (2, {"x": 2})
        queue.bury(engine, [spoilt, good])
        letters = queue.dead_letters.list(engine)
        assert [letter.headers for letter in letters] == [None, {"x": 2}]
        for one in (spoilt, letters[0]):
            assert (one.content, one.headers) == (b"1", None)
            with pytest.raises(PayloadError, match=r"the headers beside it, .* characters of JSON"):
                _ = one.payload


def test_a_content_that_is_too_long() -> None:
    """What the server could not send to anybody is refused when it is asked for, and nothing is recorded."""
    with Session() as session:
        with pytest.raises(PayloadError, match=r"268,435,457 bytes are more than a message may have, 268,435,456"):
            Queue("raw", codec=BytesCodec()).enqueue(session, channel="a", payload=bytes(2**28 + 1))
        assert not session.in_transaction()


class _Panic(BaseException):
    """What extensions in other languages raise."""


class _Codec:
    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.decoded: list[bytes] = []

    def encode(self, payload: Any) -> bytes:
        return bytes(payload)

    def decode(self, content: bytes) -> Any:
        self.decoded.append(content)
        if content == b"bad":
            raise self.error
        return content


def test_a_codec_that_cannot_decode(engine: Engine) -> None:
    """A content that the codec cannot decode, whatever it raises, spoils its own delivery only; it tells what to do."""
    for name, error in (("panics", _Panic("no value")), ("fails", KeyError("no value"))):
        queue = Queue(name, codec=_Codec(error))
        for payload in (b"bad", b"good"):
            queue.enqueue(engine, channel="a", payload=payload)
        bad, good = queue.dequeue(engine, limit=2)
        assert good.payload == b"good"
        with pytest.raises(
            PayloadError, match=f"_Codec cannot decode it: {type(error).__name__}: '?no value"
        ) as caught:
            _ = bad.payload
        assert caught.value.__cause__ is error
    Queue("bytes", codec=BytesCodec()).enqueue(engine, channel="a", payload=b"\xff")
    [delivery] = Queue("bytes").dequeue(engine)
    with pytest.raises(PayloadError, match="1 bytes are not JSON"):
        _ = delivery.payload
    assert delivery.content == b"\xff"


def test_a_decode_that_is_interrupted(engine: Engine) -> None:
    """What ends the program does so, and the next one who asks gets the payload; nothing is decoded before that."""
    for error in (KeyboardInterrupt, SystemExit):
        codec = _Codec(error())
        queue = Queue("interrupted", codec=codec)
        queue.enqueue(engine, channel="a", payload=b"bad")
        [delivery] = queue.dequeue(engine)
        assert codec.decoded == []
        for _ in range(2):
            with pytest.raises(error):
                _ = delivery.payload
        assert codec.decoded == [b"bad"] * 2
