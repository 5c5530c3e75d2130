"""Payloads encoded as JSON, byte for byte as ``JsonCodec`` does, a column at a time: a call a value would be slow.

Lists, maps, numbers with a fraction and texts with characters to escape have no vectorised form: they are encoded value
by value, by the codec's rules. This module must not know of tables or queues.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from sqlalchemy_fairqueue.codecs import JsonCodec
from sqlalchemy_fairqueue.errors import PayloadError
from sqlalchemy_fairqueue.values.messages import GROUP_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

Problems = dict[int, str]
"""Problems of rows, by their index in the batch: the first problem of each."""

_CODEC = JsonCodec()
# Characters that json.dumps escapes without ensure_ascii. There are no lone surrogates: Arrow's text is UTF-8.
_ESCAPED = r'["\\\x00-\x1f]'


def json_texts(values: pa.Array, problems: Problems, path: str = "$") -> pa.Array:
    """Each value as JSON, null as ``null``; those that cannot be encoded are noted in *problems*."""
    kind = values.type
    if pa.types.is_struct(kind):
        return _filled(values, _structs(values, problems, path))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _filled(values, _strings(values.cast(pa.string()), problems, path))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _filled(values, values.cast(pa.string()))
    if pa.types.is_floating(kind):
        return _each(values, problems, path, _number)
    if pa.types.is_null(kind):
        return pa.array(["null"] * len(values), pa.string())
    return _each(values, problems, path, lambda value: _CODEC.encode(_plain(value, kind)).decode())


def checked_json(values: pa.Array, problems: Problems, *, objects: bool = False) -> pa.Array:
    """Texts that should be JSON, unchanged; those that are not, or that jsonb would refuse, are noted in *problems*.

    Args:
        values: The texts.
        problems: The problems found.
        objects: Whether only objects are allowed.
    """

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
        # flatten() gives a field's values as null where the struct is
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
    """A nested value of Arrow, with maps as dictionaries."""
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


# A key may be written with escapes.
_MAYBE_GROUP = rf'"{GROUP_HEADER}"|\\u'


def check_headers(texts: pa.Array, groups: pa.Array, problems: Problems) -> None:
    """Note headers with what a group sets. All else that is wrong with them the staging table refuses.

    Args:
        texts: The headers as JSON; null where there are none.
        groups: The groups of the rows.
        problems: The problems found.
    """
    named = pc.and_(groups.is_valid(), pc.fill_null(pc.match_substring_regex(texts, _MAYBE_GROUP), False))
    for index in pc.indices_nonzero(named).to_pylist():
        if GROUP_HEADER in json.loads(texts[index].as_py()):
            problems.setdefault(
                index, f"headers of a member of a group have {GROUP_HEADER!r}, which the group sets; rename it"
            )
