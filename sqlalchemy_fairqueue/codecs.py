"""Codecs: objects that encode payloads as bytes, and decode them."""

from __future__ import annotations

import json
import math
from asyncio import CancelledError
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable
from uuid import UUID

from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.texts import said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Python by default reads an integer back only if it has at most 4300 decimal digits; 14,000 bits are at most 4215.
_INTEGER_BITS = 14_000
# Outside of these bounds json and msgspec write a float differently, such as 1e+16 and 1e16. NaN and infinity, which
# JSON does not have, are outside too.
_LEAST, _GREATEST = 1e-4, 1e16
_BY_JOB = "convert it, give the queue JsonCodec(default=...), or use a job (@queue.job), which converts it"
# Types that JSON lacks and jobs convert, besides dataclasses, attrs classes and models.
_OF_JOBS = (UUID, Decimal, date, time, timedelta, bytes, Enum, set, frozenset)


@runtime_checkable
class Codec(Protocol):
    """The interface of a codec: any object with ``encode`` and ``decode``. One object may serve several queues.

    All processes that use a queue need codecs that understand each other's content.

    Example:
        >>> class CompressedJson:
        ...     def encode(self, payload: object) -> bytes:
        ...         return zlib.compress(json.dumps(payload).encode())
        ...     def decode(self, content: bytes) -> object:
        ...         return json.loads(zlib.decompress(content))
        >>> codec = Queue("documents", codec=CompressedJson()).codec
        >>> codec.decode(codec.encode({"file": "a.pdf"}))
        {'file': 'a.pdf'}
    """

    def encode(self, payload: Any) -> bytes:
        """Encode a payload as bytes. Raise an error, preferably PayloadError, if the payload cannot be encoded."""
        ...

    def decode(self, content: bytes) -> Any:
        """Decode content to a payload, or raise any error. Readers of the payload get the error as a PayloadError."""
        ...


class JsonCodec:
    """JSON in UTF-8 that PostgreSQL's jsonb also accepts, so that queries can read the payload.

    A payload comes back equal, with three exceptions. A tuple comes back as a list. A value of a subclass of str, int,
    float, list or dict comes back as a value of the base class. A value that *default* has converted stays converted.
    These values are refused with PayloadError: NaN, infinity, integers of more than 14,000 bits, keys other than
    strings, NUL characters, lone surrogates, and, without *default*, values that JSON does not have.

    Args:
        default: Converts a value that JSON does not have (datetime, UUID, Decimal, bytes ...) to a value that JSON has.
            None: the codec refuses values that JSON does not have.

    Example:
        >>> codec = JsonCodec(default=str)
        >>> codec.decode(codec.encode({"file": "a.pdf", "at": date(2026, 11, 1)}))
        {'file': 'a.pdf', 'at': '2026-11-01'}
    """

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        self._default = default

    def encode(self, payload: Any) -> bytes:
        """Encode a payload. Raise PayloadError for a refused value, with its path, or if the nesting is too deep."""
        try:
            if _are_plain((payload,)):
                return _plain_encoder()(payload)
        except (UnicodeEncodeError, RecursionError):
            # The slower way below says what is wrong.
            pass
        try:
            # Some value must be converted, or refused with its path.
            return _encode(self._plain(payload, "$")).encode()
        except RecursionError:
            raise PayloadError("it is nested too deeply or contains itself; flatten it") from None

    def decode(self, content: bytes) -> Any:
        """Decode a payload. Raise PayloadError if the content is not JSON in UTF-8, or nested too deeply for Python."""
        try:
            return _decode(content.decode())
        except (ValueError, RecursionError) as error:
            raise PayloadError(
                f"{len(content)} bytes are not JSON ({error}); give the queue the codec that wrote them"
            ) from error

    def _plain(self, value: Any, path: str) -> Any:  # noqa: PLR0911 - one return for each kind of value
        match value:
            case None | bool():
                return value
            case str():
                return _text(value, path)
            case int():
                return _integer(value, path)
            case float():
                return _number(value, path)
            case dict():
                return {_key(key, path): self._plain(item, path + path_step(key)) for key, item in value.items()}
            case list() | tuple():
                return [self._plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
            case _:
                return self._plain(self._converted(value, path), path)

    def _converted(self, value: Any, path: str) -> Any:
        kind = type(value).__name__
        if self._default is None:
            ways = "convert it, or give the queue JsonCodec(default=...)"
            if (
                isinstance(value, _OF_JOBS)
                or (is_dataclass(value) and not isinstance(value, type))
                or hasattr(value, "model_dump")
                or (hasattr(value, "__attrs_attrs__") and not isinstance(value, type))
            ):
                ways = _BY_JOB
            elif hasattr(value, "__mapper__"):
                ways = "give the row's primary key, and load the row in the handler"
            raise PayloadError(f"a {kind} cannot be encoded as JSON; {ways}", path)
        try:
            return self._default(value)
        except (TypeError, ValueError) as error:
            raise PayloadError(f"the codec's default cannot convert a {kind}: {error}; convert it", path) from error


def _are_plain(values: Iterable[Any]) -> bool:  # noqa: C901, PLR0911, PLR0912 - helpers would take three times as long
    """Return whether JSON preserves these values and msgspec writes them as ``json`` does."""
    for value in values:
        kind = type(value)
        if kind is str:
            # Lone surrogates are not looked for, since msgspec's encoder refuses them.
            if "\x00" in value:
                return False
        elif kind is int:
            if value.bit_length() > _INTEGER_BITS:
                return False
        elif kind is dict:
            for key in value:
                if type(key) is not str or "\x00" in key:
                    return False
            if not _are_plain(value.values()):
                return False
        elif kind is list or kind is tuple:
            if not _are_plain(value):
                return False
        elif kind is float:
            if not (_LEAST <= abs(value) < _GREATEST or value == 0):
                return False
        elif not (value is None or kind is bool):
            return False
    return True


@cache
def _plain_encoder() -> Callable[[Any], bytes]:
    """Return msgspec's encoder, which needs a tenth of json's time. The first call imports msgspec, which is slow."""
    import msgspec  # noqa: PLC0415

    return msgspec.json.Encoder().encode


def encode_texts(fields: Mapping[str, str]) -> str:
    """Encode texts as a JSON object. They must not contain NUL characters."""
    return _plain_encoder()(fields).decode()


def _text(value: str, path: str) -> str:
    if "\x00" in value:
        raise PayloadError("a string holds a NUL character, which PostgreSQL's jsonb refuses; remove it", path)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PayloadError("a string holds a lone surrogate, which UTF-8 has no bytes for; remove it", path) from None
    return value


def _integer(value: int, path: str) -> int:
    if value.bit_length() > _INTEGER_BITS:
        raise PayloadError(f"an integer of {value.bit_length()} bits is too long to be read again; use a string", path)
    return value


def _number(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise PayloadError(f"{value!r} cannot be encoded as JSON; use None or a string", path)
    return value


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise PayloadError(f"the key {key!r:.80} is a {type(key).__name__}; JSON has string keys only", path)
    return _text(key, path)


def path_step(key: str) -> str:
    return f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


# Made only once, since making an encoder takes as long as encoding a small payload.
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode


class BytesCodec:
    """A codec for payloads that are bytes, which it stores as they are.

    Example:
        >>> pictures = Queue("pictures", codec=BytesCodec())
        >>> pictures.codec.decode(pictures.codec.encode(b"any bytes"))
        b'any bytes'
    """

    def encode(self, payload: Any) -> bytes:
        """Return the payload as bytes. Raise PayloadError if it is not bytes, bytearray or memoryview."""
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise PayloadError(f"BytesCodec got a {type(payload).__name__}; give it bytes, or the queue another codec")
        return bytes(payload)

    def decode(self, content: bytes) -> bytes:
        """Return the content as it is."""
        return content


_JSON = JsonCodec()
ON_DEAD = "on_dead:"
"""The prefix of the kinds of messages that report dead letters. SQL writes the payloads of these messages, as JSON."""


def decoded(codec: Codec, content: bytes, kind: str = "") -> Any:
    """Return the payload, or the PayloadError to raise when somebody asks for the payload."""
    codec = _JSON if kind.startswith(ON_DEAD) else codec
    try:
        return codec.decode(content)
    except PayloadError as error:
        return error
    except (KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError):
        raise
    except BaseException as error:  # noqa: BLE001 - a codec may raise anything; a panic of Rust is no Exception
        refused = PayloadError(f"{type(codec).__name__} cannot decode it: {type(error).__name__}: {said(error)}")
        refused.__cause__ = error
        return refused


def headers_of(stored: str | None) -> tuple[Any, PayloadError | None]:
    """Return (headers, None), or (None, PayloadError) if they have numbers or a depth that Python cannot read."""
    if stored is None:
        return None, None
    try:
        return json.loads(stored), None
    except (ValueError, RecursionError) as error:
        return None, PayloadError(
            f"the headers beside it, {len(stored)} characters of JSON, cannot be read ({said(error)})"
        )
