"""Converts columns of a frame to columns of the staging table. The driver checks the types, and tasks check the values.

Headers and payloads are encoded as JSON, byte for byte as ``JsonCodec`` does, unless they are binary or JSON already.
Most types are encoded a column at a time, since a call for each value would be slow. Values that are lists, maps,
floats, or texts with characters to escape are encoded one by one. This module must not open connections.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types

from sqlalchemy_fairqueue.codecs import JsonCodec
from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.reporting.columns import TIME
from sqlalchemy_fairqueue.spark.errors import BadFrame
from sqlalchemy_fairqueue.spark.options import unknown
from sqlalchemy_fairqueue.values.checks import NAME_BYTES, check_name
from sqlalchemy_fairqueue.values.messages import GROUP_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy_fairqueue.spark.options import WriteOptions

Problems = dict[int, str]
"""The first problem of each bad row, by its index in the batch."""

_CODEC = JsonCodec()
# Characters that json.dumps(ensure_ascii=False) escapes. There are no lone surrogates: Arrow's text is UTF-8.
_ESCAPED = r'["\\\x00-\x1f]'


def json_texts(values: pa.Array, problems: Problems, path: str = "$") -> pa.Array:
    """Encode each value as JSON, null as ``null``; note in *problems* values that cannot be encoded."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _filled(values, _structs(values, problems, path))
    if _is_text(values):
        return _filled(values, _strings(values.cast(pa.string()), problems, path))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _filled(values, values.cast(pa.string()))
    if pa.types.is_floating(kind):
        return _each(values, problems, path, _number)
    if pa.types.is_null(kind):
        return pa.array(["null"] * len(values), pa.string())
    return _each(values, problems, path, lambda value: _CODEC.encode(_plain(value, kind)).decode())


def checked_json(values: pa.Array, problems: Problems, *, objects: bool = False) -> pa.Array:
    """Return the JSON texts *values*, null as ``null``. Note in *problems* bad texts and, if *objects*, non-objects."""

    def check(text: str) -> str:
        document = _CODEC.decode(text.encode())
        if objects and not isinstance(document, dict):
            raise PayloadError(f"it is a {type(document).__name__}; give a JSON object")
        _CODEC.encode(document)
        return text

    return _each(values, problems, "$", check)


def _structs(values: pa.StructArray, problems: Problems, path: str) -> pa.Array:
    if not values.type.num_fields:
        return pa.array(["{}"] * len(values), pa.string())
    parts: list[Any] = []
    for index, field in enumerate(values.type):
        before = "{" if index == 0 else ","
        parts.append(pa.scalar(f"{before}{json.dumps(field.name, ensure_ascii=False)}:"))
        # flatten() would first set the fields of null structs to null, in vain: the caller replaces their texts anyway.
        parts.append(json_texts(values.field(index), problems, f"{path}.{field.name}"))
    return pc.binary_join_element_wise(*parts, pa.scalar("}"), pa.scalar(""))


def _strings(values: pa.Array, problems: Problems, path: str) -> pa.Array:
    quoted = pc.binary_join_element_wise(pa.scalar('"'), values, pa.scalar('"'), pa.scalar(""))
    special = pc.fill_null(pc.match_substring_regex(values, _ESCAPED), False)
    if not pc.any(special).as_py():
        return quoted
    escaped = []
    for index in pc.indices_nonzero(special).to_pylist():
        value = values[index].as_py()
        if "\x00" in value:
            problems.setdefault(index, f"payload at {path}: a string holds a NUL character, which jsonb refuses")
        escaped.append(json.dumps(value, ensure_ascii=False))
    return pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))


def _each(values: pa.Array, problems: Problems, path: str, encode: Callable[[Any], str]) -> pa.Array:
    texts = []
    for index, value in enumerate(values.to_pylist()):
        try:
            texts.append("null" if value is None else encode(value))
        except PayloadError as error:
            where = path + error.path.removeprefix("$")
            problems.setdefault(index, f"payload at {where}: {error.args[0]}")
            texts.append("null")
    return pa.array(texts, pa.string())


def _number(value: float) -> str:
    if not math.isfinite(value):
        raise PayloadError(f"{value!r} cannot be encoded as JSON")
    return repr(value)


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {key: _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    return value


def _filled(values: pa.Array, texts: pa.Array) -> pa.Array:
    if not values.null_count:
        return texts
    return pc.if_else(values.is_valid(), texts, pa.scalar("null"))


# JSON may write the header's name with escapes, so texts with an escape are parsed, too.
_MAYBE_GROUP = rf'"{GROUP_HEADER}"|\\u'


def check_headers(texts: pa.Array, groups: pa.Array, problems: Problems) -> None:
    named = pc.and_(groups.is_valid(), pc.fill_null(pc.match_substring_regex(texts, _MAYBE_GROUP), False))
    for index in pc.indices_nonzero(named).to_pylist():
        if GROUP_HEADER in json.loads(texts[index].as_py()):
            problems.setdefault(
                index, f"headers of a member of a group have {GROUP_HEADER!r}, which the group sets; rename it"
            )


_NESTED = (types.StructType, types.MapType)


class Kind(NamedTuple):
    """The Spark types that a column accepts, and *words* for them in errors.

    *arrow* is the type of the column in messages that ``text_files`` reads from CSV or JSON files.
    """

    accepted: tuple[type[types.DataType], ...]
    words: str
    arrow: pa.DataType = pa.string()


TEXT = Kind((types.StringType,), "a string")
WHOLE = Kind((types.ByteType, types.ShortType, types.IntegerType, types.LongType), "a whole number", pa.int64())
INSTANT = Kind((types.TimestampType,), "a timestamp (with time zone: cast a timestamp_ntz)", TIME)
DURATION = Kind(
    (types.DayTimeIntervalType,), "an interval, like expr(\"interval '5' minute\")", pa.duration("us")
)  # fmt: skip
PAYLOAD = Kind(
    (*_NESTED, types.ArrayType, types.StringType, types.BinaryType), "a struct, map, array, string or binary"
)
HEADERS = Kind((*_NESTED, types.StringType), "a map, a struct, or a string that is a JSON object")
COLUMNS = {
    "channel": TEXT, "payload": PAYLOAD, "kind": TEXT, "at": INSTANT, "delay": DURATION, "priority": WHOLE, "key": TEXT,
    "headers": HEADERS, "max_attempts": WHOLE, "cost": WHOLE, "group": TEXT, "ordering_key": TEXT,
}  # fmt: skip

_REQUIRED = ("channel", "payload")
# Types that can be encoded as JSON, besides structs, maps with text keys and arrays of these.
_JSON_SCALARS: tuple[type[types.DataType], ...] = (
    *TEXT.accepted,
    *WHOLE.accepted,
    types.BooleanType,
    types.FloatType,
    types.DoubleType,
    types.NullType,
)
_NUMBERS = {
    "delay": (0, 3_153_600_000_000_000), "priority": (1, 2**31 - 1), "max_attempts": (1, 2**31 - 1),
    "cost": (1, 1_000_000_000),
}  # fmt: skip
# The end of the year 9999, in microseconds since 1970.
_LATEST = 253_402_300_799_999_999
_STAGED = {"payload": "content", "group": "group_id"}
# PostgreSQL accepts a UUID with and without dashes, so that a frame may use md5().
_GROUP = "^[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(-?)[0-9a-fA-F]{4}(-?)[0-9a-fA-F]{4}(-?)[0-9a-fA-F]{12}$"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a frame, and their conversion to columns of the stage.

    *indexes* has each column's place by its name in lower case. *kind* and *max_attempts* are for rows that have none.
    """

    indexes: dict[str, int]
    kind: str
    max_attempts: int | None
    json_payload: bool

    @property
    def staged(self) -> tuple[str, ...]:
        """The names of the columns to fill, except ``attempt``, which :func:`copy_rows` fills."""
        return (*(_STAGED.get(name, name) for name in self.indexes), *self._constants())

    def rows(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], Problems]:
        """Return all rows, bad ones too, as an array for each of ``self.staged``; and the problems of bad rows."""
        batch, problems = _without_broken_texts(batch)
        given = {name: batch.column(index) for name, index in self.indexes.items()}
        columns = [self._encoded(name, values, problems) for name, values in given.items()]
        _check_one_time(given, problems)
        if {"headers", "group"} <= given.keys():
            check_headers(columns[list(given).index("headers")], given["group"], problems)
        count = batch.num_rows
        return [*columns, *(pa.array([value] * count) for value in self._constants().values())], problems

    def _constants(self) -> dict[str, Any]:
        found = {"kind": self.kind} | ({"max_attempts": self.max_attempts} if self.max_attempts else {})
        return {name: value for name, value in found.items() if name not in self.indexes}

    def _encoded(self, name: str, values: pa.Array, problems: Problems) -> pa.Array:
        if name == "payload":
            return self._contents(values, problems)
        if name == "headers":
            return self._headers(values, problems)
        if name == "group":
            _check_groups(values, problems)
            return values
        if COLUMNS[name] is TEXT:
            if name == "kind" and values.null_count:
                values = values.fill_null(self.kind)
            _check_texts(name, values, problems)
            return values
        whole = values.cast(pa.int64())
        if name == "at":
            _check_times(whole, problems)
        if name == "max_attempts" and self.max_attempts and whole.null_count:
            whole = whole.fill_null(self.max_attempts)
        if name in _NUMBERS:
            _check_numbers(name, whole, problems)
        return whole

    @staticmethod
    def _headers(values: pa.Array, problems: Problems) -> pa.Array:
        found: Problems = {}
        texts = checked_json(values, found, objects=True) if _is_text(values) else json_texts(values, found)
        for index, problem in found.items():
            problems.setdefault(index, "headers" + problem.removeprefix("payload"))
        return pc.if_else(values.is_valid(), texts, pa.scalar(None, pa.string())) if values.null_count else texts

    def _contents(self, values: pa.Array, problems: Problems) -> pa.Array:
        """Return contents as text of PostgreSQL's bytea: hexadecimal, or text with doubled backslashes."""
        if values.null_count:
            for index in _wrong(values.is_null()):
                problems.setdefault(index, "payload is null; drop the row, or give it a value")
        if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
            return pa.array(["\\x" + (value or b"").hex() for value in values.to_pylist()], pa.string())
        if self.json_payload and _is_text(values):
            texts = checked_json(values, problems)
        else:
            texts = json_texts(values, problems)
        return pc.replace_substring(texts, "\\", "\\\\")


def columns_of(schema: types.StructType, options: WriteOptions) -> Columns:
    """Return the columns of a frame; raise BadFrame if they are wrong, or do not go with the options."""
    indexes: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        name = column_name(field.name)
        if name in indexes:
            raise BadFrame(f"column {name!r} is there twice; select one of them")
        if not isinstance(field.dataType, COLUMNS[name].accepted):
            raise BadFrame(f"column {field.name!r} is {field.dataType.simpleString()}; make it {COLUMNS[name].words}")
        if name in {"payload", "headers"} and not isinstance(field.dataType, types.BinaryType):
            _check_json_type(field.dataType, field.name)
        indexes[name] = index
    if missing := [name for name in _REQUIRED if name not in indexes]:
        raise BadFrame(f"the frame has no column {missing[0]!r}; it has {', '.join(schema.fieldNames()) or 'none'}")
    if "group" in indexes and options.on_duplicate == "replace":
        raise BadFrame(
            "column 'group' and onDuplicate=replace do not go together: a replaced message may belong to another "
            "group; leave one of them out"
        )
    if "group" not in indexes and (options.then or options.on_failure):
        raise BadFrame("options then and onFailure follow groups, and the frame has no column 'group'; add one")
    return Columns(indexes, options.kind, options.max_attempts, options.payload_format == "json")


def column_name(given: str) -> str:
    name = given.lower()
    if name not in COLUMNS:
        raise BadFrame(unknown("column", given, COLUMNS, "; put others in payload"))
    return name


def _check_json_type(kind: types.DataType, path: str) -> None:
    if isinstance(kind, types.StructType):
        for field in kind.fields:
            _check_json_type(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, types.MapType):
        if not isinstance(kind.keyType, types.StringType):
            raise BadFrame(f"{path} has keys of type {kind.keyType.simpleString()}; cast them to string for JSON")
        _check_json_type(kind.valueType, f"{path}.*")
    elif isinstance(kind, types.ArrayType):
        _check_json_type(kind.elementType, f"{path}[]")
    elif not isinstance(kind, _JSON_SCALARS):
        raise BadFrame(
            f"{path} is {kind.simpleString()}, which cannot be encoded as JSON; cast it to string or a number"
        )


def _wrong(wrong: pa.Array) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.fill_null(wrong, False)).to_pylist()
    return found


def _is_text(values: pa.Array) -> bool:
    # Spark sends large strings if spark.sql.execution.arrow.useLargeVarTypes is set.
    return bool(pa.types.is_string(values.type) or pa.types.is_large_string(values.type))


def _without_broken_texts(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Problems]:
    """Return the batch with nulls in place of each row whose text is not UTF-8, and the problems of these rows."""
    if _is_whole(batch):
        return batch, {}
    # ``cast(... as string)`` makes such text of a binary value.
    problems: Problems = {}
    for index in range(batch.num_rows):
        row = batch.take(pa.array([index]))
        broken = [name for name, values in zip(batch.schema.names, row.columns, strict=True) if not _is_whole(values)]
        if broken:
            problems[index] = f"{broken[0]} has text that is not UTF-8; decode it by its own encoding: decode(..., ...)"
    kept = pa.array([None if index in problems else index for index in range(batch.num_rows)], pa.int64())
    return batch.take(kept), problems


def _is_whole(values: pa.RecordBatch | pa.Array) -> bool:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _check_texts(name: str, values: pa.Array, problems: Problems) -> None:
    if name == "channel" and values.null_count:
        for index in _wrong(values.is_null()):
            problems.setdefault(index, "channel is null; drop the row, or give it a value")
    size = pc.binary_length(values)
    wrong = pc.or_(pc.or_(pc.less(size, 1), pc.greater(size, NAME_BYTES)), pc.match_substring(values, "\x00"))
    for index in _wrong(wrong):
        try:
            check_name(name, values[index].as_py())
        except InvalidArgument as error:
            problems.setdefault(index, str(error))


def _check_groups(values: pa.Array, problems: Problems) -> None:
    wrong = pc.invert(pc.match_substring_regex(values, _GROUP))
    for index in _wrong(wrong):
        problems.setdefault(index, f"group is {values[index].as_py()!r:.80}; give a UUID, as of md5(...)")


def _check_numbers(name: str, values: pa.Array, problems: Problems) -> None:
    least, most = _NUMBERS[name]
    wrong = pc.or_(pc.less(values, least), pc.greater(values, most))
    for index in _wrong(wrong):
        unit = " microseconds" if name == "delay" else ""
        problems.setdefault(index, f"{name} is {values[index].as_py()}{unit}; give {least} to {most}")


def _check_times(values: pa.Array, problems: Problems) -> None:
    for index in _wrong(pc.greater(values, _LATEST)):
        problems.setdefault(index, "at is beyond the year 9999 in UTC; give an earlier time, or null for now")


def _check_one_time(given: dict[str, pa.Array], problems: Problems) -> None:
    times = [values.is_valid() for name, values in given.items() if name in {"at", "delay"}]
    if len(times) < 2:  # noqa: PLR2004 - one column alone contradicts nothing
        return
    for index in _wrong(pc.and_(*times)):
        problems.setdefault(index, "at and delay are both given; leave one of them null")
