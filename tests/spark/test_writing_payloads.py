"""Columns become messages as the library's own codec and checks would make them, without Spark's help."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sqlalchemy_fairqueue.codecs import JsonCodec
from sqlalchemy_fairqueue.spark.errors import BadFrame
from sqlalchemy_fairqueue.spark.options import WriteOptions
from sqlalchemy_fairqueue.spark.writing.columns import Columns, check_headers, checked_json, columns_of, json_texts

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
PAYLOADS = st.fixed_dictionaries(
    {
        "a text": st.none() | TEXTS,
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "float": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.none() | st.booleans(),
        "nested": st.none() | st.fixed_dictionaries({'a "quoted" key': TEXTS, "list": st.lists(st.integers(0, 9))}),
    }
)
TYPE = pa.struct(
    [
        ("a text", pa.string()),
        ("number", pa.int64()),
        ("float", pa.float64()),
        ("flag", pa.bool_()),
        ("nested", pa.struct([('a "quoted" key', pa.string()), ("list", pa.list_(pa.int64()))])),
    ]
)


def columns(options: WriteOptions | None = None, /, **kinds: DataType) -> Columns:
    """The columns of a frame with these."""
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    return columns_of(schema, options or WriteOptions(dsn="dbname=x", queue="q"))


def in_order(payload: dict[str, Any], kind: pa.DataType) -> dict[str, Any]:
    """The dictionary with its keys as the type has them."""
    nested = payload.get("nested")
    return {field.name: payload[field.name] for field in kind} | (
        {"nested": in_order(nested, kind.field("nested").type)} if nested else {}
    )


@given(st.lists(PAYLOADS, max_size=5))
def test_structs_are_what_the_codec_makes_of_dictionaries(payloads: list[dict[str, Any]]) -> None:
    """Byte for byte, whatever the texts hold."""
    problems: dict[int, str] = {}
    texts = json_texts(pa.array(payloads, TYPE), problems).to_pylist()
    assert texts == [JsonCodec().encode(in_order(payload, TYPE)).decode() for payload in payloads]
    assert problems == {}


def test_maps_are_objects() -> None:
    """Also within lists and structs."""
    kind = pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.map_(pa.string(), pa.int32()))])))
    values = pa.array([[("k", [{"x": [("y", 1)]}, None])], []], kind)
    assert json_texts(values, {}).to_pylist() == ['{"k":[{"x":{"y":1}},null]}', "{}"]


def test_values_that_json_cannot_encode_are_named_with_their_row() -> None:
    """The rows are named by their number, the values by their path, and nothing of a payload is shown."""
    kind = pa.struct([("f", pa.float64()), ("t", pa.string()), ("l", pa.list_(pa.float64()))])
    rows = [
        {"f": float("nan"), "t": "secret", "l": []},
        {"f": 1.0, "t": "sec\x00ret", "l": []},
        {"f": 1.0, "t": "", "l": [0.0, float("inf")]},
        {"f": 1.0, "t": "", "l": None},
    ]
    problems: dict[int, str] = {}
    json_texts(pa.array(rows, kind), problems)
    assert problems == {
        0: "payload at $.f: nan cannot be encoded as JSON",
        1: "payload at $.t: a string holds a NUL character, which jsonb refuses",
        2: "payload at $.l[1]: inf cannot be encoded as JSON; use None or a string",
    }


def test_documents_are_kept_as_they_are() -> None:
    """With payloadFormat=json a text is a document, checked and not written anew."""
    problems: dict[int, str] = {}
    texts = checked_json(pa.array(['{"a" : 1.50}', "{", '"\\u0000"', "[NaN]"]), problems).to_pylist()
    assert texts[0] == '{"a" : 1.50}'
    assert sorted(problems) == [1, 2, 3]


def test_a_row_of_each_column() -> None:
    """Times become microseconds, contents the text of a bytea, what is not given the options' own."""
    options = WriteOptions(dsn="dbname=x", queue="q", kind="embed", max_attempts=3)
    found = columns(
        options,
        Channel=StringType(),
        payload=StringType(),
        at=TimestampType(),
        delay=DayTimeIntervalType(),
        priority=IntegerType(),
        key=StringType(),
        headers=MapType(StringType(), StringType()),
    )
    batch = pa.record_batch(
        [
            pa.array(["a", "b", "c"]),
            pa.array(["x\\y", "", "ü"]),
            pa.array([datetime(1970, 1, 2, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
            pa.array([None, timedelta(seconds=1), None], pa.duration("us")),
            pa.array([None, None, 5], pa.int32()),
            pa.array([None, "k", "l"]),
            pa.array([None, [("h", "v")], []], pa.map_(pa.string(), pa.string())),
        ],
        ["Channel", "payload", "at", "delay", "priority", "key", "headers"],
    )
    rows, problems = found.rows(batch)
    assert problems == {}
    assert found.staged == (
        "channel", "content", "at", "delay", "priority", "key", "headers", "kind", "max_attempts",
    )  # fmt: skip
    assert [column.to_pylist() for column in rows] == [
        ["a", "b", "c"],
        ['"x\\\\\\\\y"', '""', '"ü"'],
        [86_400_000_000, None, None],
        [None, 1_000_000, None],
        [None, None, 5],
        [None, "k", "l"],
        [None, '{"h":"v"}', "{}"],
        ["embed"] * 3,
        [3] * 3,
    ]


def test_bytes_are_contents_as_they_are() -> None:
    """A codec of the user's own may have written them."""
    rows, problems = columns(channel=StringType(), payload=BinaryType()).rows(
        pa.record_batch([pa.array(["a", "b"]), pa.array([b"\x00\xff\\", None])], ["channel", "payload"])
    )
    assert rows[1][0].as_py() == "\\x00ff5c"
    assert problems == {1: "payload is null; drop the row, or give it a value"}


def test_headers_are_told_as_headers() -> None:
    """Also where they are texts, which must be objects; the problem of a payload comes first."""
    found = columns(channel=StringType(), payload=StringType(), headers=StringType())
    texts = ['{"n" : 1}', None, "[1]", "{", '{"x": "\\u0000"}']
    batch = pa.record_batch(
        [pa.array(["a"] * 5), pa.array(["p"] * 5), pa.array(texts)], ["channel", "payload", "headers"]
    )
    rows, problems = found.rows(batch)
    assert rows[2][:2].to_pylist() == texts[:2]
    assert problems[2] == "headers at $: it is a list; give a JSON object"
    assert problems[3].startswith("headers at $: 1 bytes are not JSON")
    assert problems[4].startswith("headers at $.x: a string holds a NUL")
    kind = pa.map_(pa.string(), pa.float64())
    bad = pa.record_batch(
        [pa.array(["a"]), pa.array(["p"]), pa.array([[("h", float("nan"))]], kind)], ["channel", "payload", "headers"]
    )
    mapped = columns(channel=StringType(), payload=StringType(), headers=MapType(StringType(), DoubleType()))
    assert mapped.rows(bad)[1][0].startswith("headers at $.h: nan cannot be encoded as JSON")


def test_a_header_that_the_group_sets_is_a_bad_row() -> None:
    """The load would overwrite it; outside of groups, and within another header, it is like any other."""
    texts = ['{"group":"mine"}', '{"gro\\u0075p":1}', '{"x":{"group":1}}', '{"x":"\\u0041"}', None, '{"group":"mine"}']
    problems: dict[int, str] = {}
    check_headers(pa.array(texts), pa.array([str(uuid4())] * 5 + [None]), problems)
    assert problems == dict.fromkeys(
        (0, 1), "headers of a member of a group have 'group', which the group sets; rename it"
    )


def test_large_texts_are_documents_too() -> None:
    """With spark.sql.execution.arrow.useLargeVarTypes a batch has large texts: they are checked and kept too."""
    options = WriteOptions(dsn="dbname=x", queue="q", payload_format="json")
    found = columns(options, channel=StringType(), payload=StringType(), key=StringType())
    texts = (["a", ""], ['{"a" : 1.50}', "no JSON"], ["k", None])
    batch = pa.record_batch([pa.array(one, pa.large_string()) for one in texts], ["channel", "payload", "key"])
    rows, problems = found.rows(batch)
    assert rows[1][0].as_py() == '{"a" : 1.50}'
    assert problems[1].startswith("channel '' has 0 bytes")
    assert found.rows(batch.set_column(0, "channel", pa.array(["a", "b"])))[1][1].startswith("payload at $")


def test_each_bad_value_is_told() -> None:
    """One problem a row, with the column and, unless it is a payload, the value."""
    found = columns(
        channel=StringType(), payload=StringType(), kind=StringType(), key=StringType(),
        at=TimestampType(), delay=DayTimeIntervalType(), priority=LongType(), max_attempts=LongType(),
        cost=IntegerType(),
    )  # fmt: skip
    good: dict[str, Any] = dict.fromkeys(found.indexes) | {"channel": "c", "payload": "p"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"channel": None}, "channel is null"),
        ({"channel": ""}, "channel '' has 0 bytes"),
        ({"channel": "c\x00"}, "holds a NUL character"),
        ({"channel": "ü" * 257}, "has 514 bytes of UTF-8; use 1 to 512"),
        ({"payload": None}, "payload is null"),
        ({"kind": ""}, "kind '' has 0 bytes"),
        ({"key": "k" * 513}, "has 513 bytes"),
        ({"delay": timedelta(microseconds=-1)}, "delay is -1 microseconds; give 0 to"),
        ({"priority": 0}, "priority is 0; give 1 to"),
        ({"priority": 2**31}, "priority is 2147483648"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"cost": 0}, "cost is 0; give 1 to 1000000000"),
        ({"at": datetime.now(UTC), "delay": timedelta(1)}, "at and delay are both given"),
    ]
    rows: list[dict[str, Any]] = [good | bad for bad, _ in wrong] + [good]
    kinds = {
        "at": pa.timestamp("us", "UTC"), "delay": pa.duration("us"), "priority": pa.int64(), "max_attempts": pa.int64(),
        "cost": pa.int32(),
    }  # fmt: skip
    arrays = [pa.array([row[name] for row in rows], kinds.get(name, pa.string())) for name in found.indexes]
    _, problems = found.rows(pa.record_batch(arrays, list(found.indexes)))
    assert sorted(problems) == list(range(len(wrong)))
    for index, (_, words) in enumerate(wrong):
        assert words in problems[index]


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"payload": StringType()}, "the frame has no column 'channel'; it has payload"),
        ({"channel": StringType()}, "the frame has no column 'payload'"),
        ({"channel": IntegerType(), "payload": StringType()}, "column 'channel' is int; make it a string"),
        ({"channel": StringType(), "payload": IntegerType()}, "column 'payload' is int; make it a struct"),
        ({"channel": StringType(), "payload": StringType(), "prioritty": LongType()}, "did you mean priority?"),
        ({"channel": StringType(), "payload": StringType(), "tenant": LongType()}, "put others in payload"),
        ({"channel": StringType(), "payload": StringType(), "Channel": StringType()}, "'channel' is there twice"),
        ({"channel": StringType(), "payload": StringType(), "at": TimestampNTZType()}, "cast a timestamp_ntz"),
        ({"channel": StringType(), "payload": StringType(), "delay": LongType()}, "make it an interval"),
        (
            {"channel": StringType(), "payload": ArrayType(StructType([StructField("d", DateType())]))},
            r"payload\[\]\.d is date, which cannot be encoded as JSON",
        ),
        (
            {"channel": StringType(), "payload": MapType(LongType(), StringType())},
            "payload has keys of type bigint; cast them",
        ),
        ({"channel": StringType(), "payload": MapType(StringType(), DecimalType(9, 2))}, r"payload\.\* is decimal"),
    ],
)
def test_frames_that_cannot_be(kinds: dict[str, DataType], message: str) -> None:
    """The column and its type are named before any task starts."""
    with pytest.raises(BadFrame, match=message):
        columns(None, **kinds)


def test_the_json_of_a_message_can_be_read_again() -> None:
    """What is staged is valid for whoever decodes it."""
    (text,) = json_texts(pa.array([{"a": '"\\\n\x1f\x7f€'}], pa.struct([("a", pa.string())])), {}).to_pylist()
    assert json.loads(text) == {"a": '"\\\n\x1f\x7f€'}
