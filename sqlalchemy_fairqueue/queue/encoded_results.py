"""Results of handlers, encoded like payloads, up to a greatest size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database import EncodedResult
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.texts import clean, said
from sqlalchemy_fairqueue.values import RESULT_BYTES

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.codecs import Codec
    from sqlalchemy_fairqueue.queue.payloads import PayloadSchema

_PROBLEM = 2_000


@dataclass(frozen=True, slots=True)
class UnkeptValue:
    """A value that a handler returned in another process, and that could not be sent."""

    problem: str


def encoded_result(codec: Codec, schema: PayloadSchema | None, value: object) -> EncodedResult:
    """The result to keep of a value that a handler returned. It never raises: the handler has done its work."""
    if value is None:
        return EncodedResult()
    if isinstance(value, UnkeptValue):
        return _unkept(value.problem)
    try:
        return EncodedResult(_content(codec, schema, value))
    except Exception as error:  # noqa: BLE001 - a codec and a model's own code may raise anything
        problem = str(error) if isinstance(error, PayloadError) else f"{type(error).__name__}: {said(error)}"
        return _unkept(problem.replace("payload at", "the value at", 1))


def given_result(codec: Codec, value: object) -> EncodedResult:
    """The result to keep of a value that a call gives.

    Raises:
        PayloadError: It cannot be encoded, or is too large.
    """
    return EncodedResult(None if value is None else _content(codec, None, value))


def _content(codec: Codec, schema: PayloadSchema | None, value: object) -> bytes:
    if schema is not None:
        value = schema.result.plain(value)
    content: object = codec.encode(value)
    if not isinstance(content, bytes):
        raise PayloadError(f"{type(codec).__name__} made a {type(content).__name__} of it; let encode() return bytes")
    if len(content) > RESULT_BYTES:
        raise PayloadError(
            f"it has {len(content):,} bytes, and a result {RESULT_BYTES:,} at most; keep it elsewhere and return where"
        )
    return content


def _unkept(problem: str) -> EncodedResult:
    # In ASCII, which every encoding of a database has bytes for.
    return EncodedResult(problem=clean(problem[:_PROBLEM]).encode("ascii", "backslashreplace").decode())
