"""Converts job arguments and results to plain values, which a codec takes, and back.

pydantic converts pydantic models, and msgspec all other values. A value that would not come back equal is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import count
from types import NoneType, UnionType
from typing import Any, NotRequired, TypedDict, Union, get_args, get_origin
from uuid import UUID

import msgspec

from sqlalchemy_fairqueue.codecs import path_step
from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.queue.signatures import annotations_of, resolved
from sqlalchemy_fairqueue.texts import said
from sqlalchemy_fairqueue.values.messages import EnqueueOptions
from sqlalchemy_fairqueue.values.outcomes import Outcome

_KINDS = inspect.Parameter
_AT = " - at `"


class PayloadSchema:
    """Names and types of the arguments in a job's payload. Arguments of older code, named in *former*, are ignored."""

    def __init__(
        self, kind: str, function: Callable[..., Any], parameters: list[inspect.Parameter], former: Iterable[str] = ()
    ) -> None:
        self.kind = kind
        self._former = frozenset(former)
        types = _types(kind, function, parameters)
        self.result: ResultSchema = ResultSchema(kind, function)
        self.signature: inspect.Signature = inspect.Signature(
            [one.replace(annotation=types[one.name]) for one in parameters]
        )
        self._names = frozenset(types)
        self._known: frozenset[str] | None = self._names
        self._required = frozenset(one.name for one in parameters if one.default is _KINDS.empty)
        fields = {
            one.name: types[one.name] if one.default is _KINDS.empty else NotRequired[types[one.name]]
            for one in parameters
        }
        typed: Any = TypedDict
        self._type = typed(kind if kind.isidentifier() else "Payload", fields)
        # Checked here, so that unsupported types are refused at the declaration of the job.
        for name, annotation in types.items():
            _check_type(kind, name, annotation)

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Convert the arguments of a call to the plain values of a payload.

        A missing or unknown argument raises TypeError. A value raises PayloadError if its annotation does not allow it,
        or if it would come back changed.
        """
        given = kwargs
        # The arguments are bound only if needed, since binding takes longer than everything else.
        if args or not self._required <= kwargs.keys() <= self._names:
            try:
                given = self.signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                options = [
                    f"{name}=..."
                    for name in kwargs
                    if name in EnqueueOptions.__annotations__ and name not in self._names
                ]
                advice = f"; options of the message go to options({', '.join(options)})" if options else ""
                raise TypeError(f"job {self.kind!r}: {error}; it takes {self.signature}{advice}") from None
        try:
            payload = msgspec.to_builtins(given, str_keys=True, enc_hook=_plain_model)
        except Exception:  # noqa: BLE001 - the next line converts one by one, to tell which argument failed
            payload = {name: self.plain(name, value) for name, value in given.items()}
        arguments = self._convert(payload, given)
        for name, value in given.items():
            whose, path = f"argument {name!r} of job {self.kind!r} is", self._path(f"$.{name}")
            if (loss := _loss(value, arguments[name], whose, path)) is not None:
                raise PayloadError(f"{whose} {value!r:.80}: {loss.problem}", path + loss.path)
        return self.joined(payload)

    def joined(self, arguments: dict[str, Any]) -> Any:
        """Return the payload that holds *arguments*: the dict itself. ItemSchema returns the dict's only value."""
        return arguments

    def plain(self, name: str, value: Any) -> Any:
        return _plain(value, f"argument {name!r} of job {self.kind!r} is", self._path(f"$.{name}"))

    def decode(self, payload: Any) -> Any:
        """Convert a payload to a call's arguments, or raise PayloadError. Arguments with a default may be missing."""
        return self._convert(payload, payload if isinstance(payload, Mapping) else {})

    def check_known(self, payload: Any) -> None:
        if self._known is None or not isinstance(payload, Mapping):
            return
        if unknown := sorted(payload.keys() - self._known - self._former):
            raise PayloadError(
                f"job {self.kind!r} has no argument {unknown[0]!r:.80} here, it takes {self.signature}; name what it "
                "had once in @queue.job(former=...)",
                f"$.{unknown[0]}",
            )

    def _convert(self, payload: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        try:
            arguments: dict[str, Any] = msgspec.convert(payload, self._type, str_keys=True, dec_hook=_model)
        except msgspec.ValidationError as error:
            problem, _, rest = str(error).partition(_AT)
            path = rest.removesuffix("`") or "$"
            name = path.removeprefix("$.").partition(".")[0].partition("[")[0]
            whose = f"job {self.kind!r} takes {self.signature}"
            if name in given:
                whose = f"argument {name!r} of job {self.kind!r} is {given[name]!r:.80}"
                if given[name] is None:
                    problem += "; the key of a new row is None until session.flush()"
            raise PayloadError(f"{whose}: {problem}", self._path(path)) from error
        return arguments

    def _path(self, path: str) -> str:
        """Convert a path within the arguments to the path within the payload. Errors show the result."""
        return path


class ItemSchema(PayloadSchema):
    """The payload of a job with ``batch``: one item of the list that its function takes."""

    def __init__(
        self, kind: str, function: Callable[..., Any], parameters: list[inspect.Parameter], former: Iterable[str] = ()
    ) -> None:
        types = _types(kind, function, parameters)
        self._name = parameters[0].name if parameters else ""
        item = _item_type(types.get(self._name))
        if len(parameters) != 1 or parameters[0].kind is not _KINDS.POSITIONAL_OR_KEYWORD or item is _UNKNOWN:
            raise InvalidArgument(
                f"job {kind!r} has batch=, and takes ({', '.join(map(str, parameters))}) after context and session; "
                "let it take one list, with what each message has, such as (texts: list[Text])"
            )
        one = parameters[0].replace(annotation=item, kind=_KINDS.POSITIONAL_ONLY, default=_KINDS.empty)
        super().__init__(kind, function, [one], former)
        self.result = ResultSchema(kind, function, is_batch=True)
        self._known = _field_names(item)

    def joined(self, arguments: dict[str, Any]) -> Any:
        return arguments[self._name]

    def decode(self, payload: Any) -> Any:
        return super().decode({self._name: payload})[self._name]

    def _path(self, path: str) -> str:
        return f"${path.removeprefix(f'$.{self._name}')}"


def _item_type(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) in {list, Sequence} else _UNKNOWN


def _field_names(annotation: Any) -> frozenset[str] | None:
    info = msgspec.inspect.type_info(annotation)
    if not isinstance(info, (msgspec.inspect.DataclassType, msgspec.inspect.StructType, msgspec.inspect.TypedDictType)):
        return None
    tag = getattr(info, "tag_field", None)
    return frozenset(field.encode_name for field in info.fields) | ({tag} if tag else set())


class ResultSchema:
    """The return type of a job's function. It converts returned values to plain values, and back.

    If the function has no return annotation, or neither msgspec nor pydantic can convert to the annotated type, values
    are read as the codec returns them.
    """

    def __init__(self, kind: str, function: Callable[..., Any], *, is_batch: bool = False) -> None:
        self.kind = kind
        self._type = _result_type(function, is_batch=is_batch)

    def plain(self, value: Any) -> Any:
        plain = _plain(value, f"job {self.kind!r} returned")
        found = self._converted(plain, f"job {self.kind!r} returned {value!r:.80}")
        if (loss := _loss(value, found, f"job {self.kind!r} returned", "$")) is not None:
            raise PayloadError(f"job {self.kind!r} returned {value!r:.80}: {loss.problem}", f"${loss.path}")
        return plain

    def value(self, plain: Any) -> Any:
        """Convert a kept value to the annotated return type; raise PayloadError if it does not fit this type."""
        return self._converted(plain, f"the result of job {self.kind!r} is {plain!r:.80}")

    def _converted(self, plain: Any, what: str) -> Any:
        if self._type is _UNKNOWN or plain is None:
            return plain
        try:
            return msgspec.convert(plain, self._type, str_keys=True, dec_hook=_model)
        except msgspec.ValidationError as error:
            problem, _, rest = str(error).partition(_AT)
            raise PayloadError(f"{what}: {problem}", rest.removesuffix("`") or "$") from error


_UNKNOWN: Any = object()


def _plain(value: Any, whose: str, path: str = "$") -> Any:
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_plain_model)
    except Exception as error:  # a model's own code may raise anything
        if isinstance(error, RecursionError):
            raise PayloadError(f"{whose} {_DEEP}", path) from error
        raise PayloadError(f"{whose} {value!r:.80}: {said(error)}", path) from error


def _loss(given: Any, found: Any, whose: str, path: str) -> Loss | None:
    try:
        return find_loss(given, found)
    except RecursionError as error:
        raise PayloadError(f"{whose} {_DEEP}", path) from error


def _result_type(function: Callable[..., Any], *, is_batch: bool) -> Any:
    annotation = annotations_of(inspect.unwrap(function)).get("return", _UNKNOWN)
    if annotation is _UNKNOWN:
        return _UNKNOWN
    try:
        found = resolved({"return": annotation}, function, extras=True)["return"]
        # An Outcome settles the message, and is no result.
        kept = [one for one in get_args(found) if not _is_outcome(one)] if _is_union(found) else [found]
        if is_batch:
            kept = [_item_type(one) for one in kept if one is not NoneType]
        wanted = Union[tuple(kept)] if kept else None  # noqa: UP007 - the number of types is not known here
        if _is_outcome(wanted) or _unsupported(msgspec.inspect.type_info(wanted), set()) is not None:
            return _UNKNOWN
    except Exception:  # noqa: BLE001 - what cannot be resolved here may be for type checkers alone
        return _UNKNOWN
    return wanted


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in {Union, UnionType}


def _is_outcome(annotation: Any) -> bool:
    if get_origin(annotation) is type:
        return any(map(_is_outcome, get_args(annotation)))
    return isinstance(annotation, type) and issubclass(annotation, Outcome)


def _types(kind: str, function: Callable[..., Any], parameters: list[inspect.Parameter]) -> dict[str, Any]:
    for one in parameters:
        if one.annotation is _KINDS.empty:
            raise InvalidArgument(
                f"argument {one.name!r} of job {kind!r} has no annotation; give it a type, or Any for plain JSON"
            )
    try:
        return resolved({one.name: one.annotation for one in parameters}, function, extras=True)
    except (NameError, TypeError) as error:
        raise InvalidArgument(
            f"an annotation of job {kind!r} cannot be resolved: {said(error)}; define what it names before the job, at "
            "the top of a module, and import it outside of TYPE_CHECKING"
        ) from error


def _check_type(kind: str, name: str, annotation: Any) -> None:
    try:
        problem = _unsupported(msgspec.inspect.type_info(annotation), set())
    except (TypeError, NameError) as error:
        problem = said(error)
    if problem is not None:
        advice = ""
        if isinstance(annotation, type) and hasattr(annotation, "__mapper__"):
            advice = "; give the row's primary key, and let the job load the row in its session"
        raise InvalidArgument(f"argument {name!r} of job {kind!r} cannot be converted: {problem}{advice}")


def _unsupported(info: Any, seen: set[Any]) -> str | None:
    if isinstance(info, msgspec.inspect.CustomType):
        return None if _is_model(info.cls) else f"{info.cls!r} is no type that msgspec or pydantic knows"
    if cls := getattr(info, "cls", None):
        if cls in seen:
            return None
        seen.add(cls)
    parts: list[Any] = [getattr(info, part, None) for part in ("item_type", "key_type", "value_type", "type")]
    parts += getattr(info, "types", ())
    parts += getattr(info, "item_types", ())
    parts += [field.type for field in getattr(info, "fields", ())]
    return next((found for one in parts if one is not None and (found := _unsupported(one, seen))), None)


def _is_model(cls: Any) -> bool:
    return isinstance(cls, type) and hasattr(cls, "model_validate_json") and hasattr(cls, "model_dump")


def _plain_model(value: Any) -> Any:
    if not _is_model(type(value)):
        raise TypeError(f"a {type(value).__name__} cannot be converted")
    return value.model_dump(mode="json", by_alias=True, round_trip=True)


def _model(cls: Any, value: Any) -> Any:
    """Make a pydantic model of plain values, through JSON, since only there a strict model takes a date as text."""
    if not _is_model(cls):
        raise TypeError(f"a {cls.__name__} cannot be converted")
    if type(value) is cls:
        return value
    try:
        return cls.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(_problems(error)) from error


def _problems(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    if errors is None:
        return said(error)
    found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else one["msg"] for one in errors()]
    return "; ".join(found)


_SCALARS = frozenset({str, int, bool, NoneType, bytes, UUID, date, timedelta})
_MOMENTS = (datetime, time)
_COLLECTIONS = (dict, list, tuple, set, frozenset)
_DEEP = "a value that is nested too deeply or contains itself; flatten it"


@dataclass(frozen=True, slots=True)
class Loss:
    """A part of a value that would come back changed: its path, the part as given, and what would come back."""

    path: str
    given: Any
    found: Any

    @property
    def problem(self) -> str:
        kind = type(self.found)
        back = f"{self.found!r:.80}" if kind is type(self.given) else f"the {kind.__name__} {self.found!r:.80}"
        part = f"its part {self.path.removeprefix('.')} is {self.given!r:.80}, and that" if self.path else "it"
        return f"{part} would come back as {back}; convert it, or annotate it with a type that keeps it"


def find_loss(given: Any, found: Any) -> Loss | None:
    """Return the first part of a value that would come back changed, or None.

    Dataclasses, classes of attrs, structs of msgspec and models of pydantic are compared field by field, since their
    ``__eq__`` may leave out fields, and is false if a field is NaN.
    """
    kind = type(given)
    if kind is not type(found):
        # An integer is allowed, and comes back as a float, if the annotation is float.
        is_kept = kind is int and type(found) is float and given == found
    elif kind in _SCALARS:
        is_kept = given == found
    elif kind is float or kind is Decimal:
        # NaN is unequal to itself, and -0.0 equals 0.0.
        is_kept = repr(given) == repr(found)
    elif isinstance(given, _MOMENTS):
        is_kept = _reading(given) == _reading(found)
    elif isinstance(given, _COLLECTIONS):
        if len(given) == len(found):
            return _loss_of_items(given, found)
        is_kept = False
    elif (names := _fields_of(kind)) is not None:  # type: ignore[arg-type] # mypy overlooks the hash of a class
        return _first(_to_key, ((name, getattr(given, name, None), getattr(found, name, None)) for name in names))
    else:
        is_kept = _are_equal(given, found)
    return None if is_kept else Loss("", given, found)


def _loss_of_items(given: Any, found: Any) -> Loss | None:
    kinds = {*map(type, given), *map(type, found)}
    is_uniform = len(kinds) == 1 and kinds <= _SCALARS
    if isinstance(given, list | tuple):
        return None if is_uniform and given == found else _first(_to_item, zip(count(), given, found))
    if not {*given} <= {*found}:
        return Loss("", given, found)
    if not is_uniform:
        # Equal keys may be of two types: 1 and True.
        kept = {item: item for item in found}
        if (loss := _first(_to_key, ((item, item, kept[item]) for item in given))) is not None:
            return loss
    return _first(_to_key, zip(given, given.values(), map(found.get, given))) if isinstance(given, dict) else None  # noqa: B905


def _first(step: Callable[[Any], str], parts: Iterable[tuple[Any, Any, Any]]) -> Loss | None:
    for name, given, found in parts:
        # Compared here, since most parts are scalars, for which a call would take as long as all else.
        if (kind := type(given)) in _SCALARS and kind is type(found) and given == found:
            continue
        if (loss := find_loss(given, found)) is not None:
            return Loss(step(name) + loss.path, loss.given, loss.found)
    return None


def _to_item(index: int) -> str:
    return f"[{index}]"


def _to_key(key: Any) -> str:
    return path_step(key) if isinstance(key, str) else f"[{key!r}]"


@lru_cache(1024)
def _fields_of(kind: Any) -> Sequence[str] | None:
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    if hasattr(kind, "__attrs_attrs__"):
        return [field.name for field in kind.__attrs_attrs__]
    if hasattr(kind, "model_fields"):
        return [*kind.model_fields, "__pydantic_extra__", "__pydantic_private__"]
    return getattr(kind, "__struct_fields__", None)


def _are_equal(given: Any, found: Any) -> bool:
    try:
        return bool(given == found)
    except Exception:  # noqa: BLE001 - a class's own code may raise anything; then nobody can tell
        return False


def _reading(moment: datetime | time) -> tuple[str, bool]:
    # ``==`` is false between two zones for a local time that a clock change repeats or skips.
    return moment.isoformat(), moment.tzinfo is None
