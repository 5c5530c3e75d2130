"""Reads messages from CSV (RFC 4180) and JSON Lines: malformed text is an error, and payloads stay as written.

Spark's own readers would guess: they end a file at an unclosed quote, ignore text after a document, give each payload
the fields of all others, and change line endings. This module must not know queues.
"""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from sqlalchemy_fairqueue.spark.errors import BadFrame
from sqlalchemy_fairqueue.spark.executors import shipped
from sqlalchemy_fairqueue.spark.writing.columns import COLUMNS, DURATION, INSTANT, TEXT, WHOLE, column_name
from sqlalchemy_fairqueue.times import parsed_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from sqlalchemy_fairqueue.spark.writing.columns import Kind

    Row = dict[str, Any]

_ROWS = 10_000
_BOM = "\ufeff"
# A field may be as long as a payload.
_LONGEST_FIELD = 2**31 - 1
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


def read_messages(spark: SparkSession, path: str, file_format: str, *, json_payload: bool) -> DataFrame:
    """Return a frame to enqueue with ``payload_format="json"``: its payloads are JSON documents.

    A file of format ``csv`` has column names in its first line, and one task reads it whole; ``json`` has an object on
    each line. If *json_payload* is True, a payload of text is taken as a JSON document; else it becomes a JSON string.
    """
    whole = file_format == "csv"
    texts = spark.read.text(path, wholetext=whole).selectExpr("_metadata.file_path", "cast(value as binary)")
    schema = from_arrow_schema(pa.schema([(name, kind.arrow) for name, kind in COLUMNS.items()]))
    return texts.mapInArrow(shipped(partial(_batches, partial(_csv if whole else _json, json_payload))), schema)


def _batches(read: Callable[[str], Iterator[Row]], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows: list[Row] = []
        for file, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            try:
                for row in read(content.decode().removeprefix(_BOM)):
                    rows.append(row)
                    if len(rows) == _ROWS:
                        yield _batch(rows)
                        rows = []
            except ValueError as error:
                raise BadFrame(f"{file} cannot be read: {error}") from None
        if rows:
            yield _batch(rows)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = [pa.array([row.get(name) for row in rows], kind.arrow) for name, kind in COLUMNS.items()]
    return pa.record_batch(columns, list(COLUMNS))


def _csv(json_payload: bool, text: str) -> Iterator[Row]:  # noqa: FBT001 - given by partial, before the text
    # An empty field is read as None, since Python's csv writes None so.
    csv.field_size_limit(_LONGEST_FIELD)
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        names = [column_name(name) for name in next(lines, [])]
        for fields in lines:
            if fields:
                values = _by_name(names, fields)
                written = values | {"payload": json.dumps(values.get("payload"), ensure_ascii=False)}
                yield _row(values, written, json_payload)
    except (ValueError, csv.Error) as error:
        raise ValueError(f"line {lines.line_num}: {error}") from None


def _by_name(names: list[str], fields: list[str]) -> Row:
    if len(set(names)) < len(names):
        raise ValueError(f"a name is there twice in {', '.join(names)}")
    if len(fields) != len(names):
        raise ValueError(f"{len(fields)} fields under {len(names)} names")
    return {name: field or None for name, field in zip(names, fields, strict=True)}


def _json(json_payload: bool, text: str) -> Iterator[Row]:  # noqa: FBT001
    if not text.strip():
        return
    try:
        yield _row(_object(text), _raw_values(text), json_payload)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a line of {len(text)} characters: {error}; give a JSON object a line") from None


def _object(text: str) -> Row:
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"it is a {type(values).__name__}, and no object")  # noqa: TRY004 - of JSON
    return values


def _raw_values(text: str) -> dict[str, str]:
    """Return the values of an object as the text has them. The text must be valid JSON. Refuse a repeated name."""
    found: dict[str, str] = {}
    index = _skip_blanks(text, text.index("{") + 1)
    while text[index] != "}":
        name, index = _DECODER.raw_decode(text, index)
        start = _skip_blanks(text, text.index(":", index) + 1)
        _, end = _DECODER.raw_decode(text, start)
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = text[start:end]
        index = _skip_blanks(text, end)
        if text[index] == ",":
            index = _skip_blanks(text, index + 1)
    return found


def _skip_blanks(text: str, index: int) -> int:
    found = _BLANK.match(text, index)
    return found.end() if found else index


def _row(values: Mapping[str, Any], written: Mapping[str, str], json_payload: bool) -> Row:  # noqa: FBT001
    row: Row = {}
    for name, value in values.items():
        column = column_name(name)
        if column in row:
            raise ValueError(f"column {column!r} is there twice")
        read = _PARSERS.get(COLUMNS[column])
        try:
            if value is None:
                row[column] = None
            elif read is not None:
                row[column] = read(value)
            else:
                is_document = column == "payload" and json_payload and isinstance(value, str)
                row[column] = value if is_document else written[name]
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{column}: {error}") from None
    return row


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.80} is no text")  # noqa: TRY004 - of JSON
    # Lone surrogates are refused here, so that the error names the column.
    value.encode()
    return value


def _whole(value: Any) -> int:
    number = int(value) if isinstance(value, str) else value
    if not isinstance(number, int) or isinstance(number, bool) or not -(2**63) <= number < 2**63:
        raise ValueError(f"{value!r:.80} is no whole number")
    return number


def _instant(value: Any) -> datetime:
    found = datetime.fromisoformat(_text(value))
    return found if found.tzinfo else found.replace(tzinfo=UTC)


# Values of the other kinds stay as written.
_PARSERS: dict[Kind, Callable[[Any], Any]] = {
    TEXT: _text, WHOLE: _whole, INSTANT: _instant, DURATION: lambda value: parsed_duration(_text(value)),
}  # fmt: skip
