"""Frames and documents of figures: values as rows of pandas, and as mappings for programs."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pandas import DataFrame


def frame_of(rows: Iterable[dict[str, Any]]) -> DataFrame:
    """Rows as a pandas DataFrame."""
    import pandas as pd  # noqa: PLC0415 - a page needs none

    return pd.DataFrame(list(rows))


def row_of(value: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """A value as a row; the fields of values in it become columns like ``wait_p95``."""
    return {name: one for name, one in _fields(value) if name not in without}


def document_of(value: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """A value as a document for programs: values in it become mappings, durations seconds."""
    document: dict[str, Any] = {}
    for each in fields(value):
        one, name = getattr(value, each.name), each.name.rstrip("_")
        if each.name in without:
            continue
        if "timedelta" in str(each.type):
            document[f"{name}_seconds"] = None if one is None else one.total_seconds()
        else:
            document[name] = _documented(one)
    return document


def _documented(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_documented(one) for one in value]
    return document_of(value) if is_dataclass(value) else value


def _fields(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for each in fields(value):
        one, name = getattr(value, each.name), prefix + each.name.rstrip("_")
        if is_dataclass(one):
            yield from _fields(one, f"{name}_")
        else:
            yield name, one
