"""Columns become messages as the library's own codec and checks would make them, without Spark's help."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types

from sqlalchemy_fairqueue import Enqueue
from sqlalchemy_fairqueue.codecs import JsonCodec
from sqlalchemy_fairqueue.spark.errors import BadFrame
from sqlalchemy_fairqueue.spark.options import WriteOptions
from sqlalchemy_fairqueue.spark.writing.columns import Columns, check_headers, checked_json, columns_of, json_texts

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
# Unlike those of st.fixed_dictionaries(), the keys are in the order of the type.
NESTED: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, **{'a "quoted" key': TEXTS, "list": st.lists(st.integers(0, 9))}
)
PAYLOADS: st.SearchStrategy[dict[str, Any]] = st.builds(dict, **{
    "a text": st.none() | TEXTS, "number": st.none() | st.integers(-(2**63), 2**63 - 1),
    "float": st.none() | st.floats(allow_nan=False, allow_infinity=False), "flag": st.none() | st.booleans(),
    "nested": st.none() | NESTED,
})  # fmt: skip
TYPE = pa.struct({
    "a text": pa.string(), "number": pa.int64(), "float": pa.float64(), "flag": pa.bool_(),
    "nested": pa.struct({'a "quoted" key': pa.string(), "list": pa.list_(pa.int64())}),
})  # fmt: skip
TWO_TEXTS: dict[str, types.DataType | None] = {"channel": types.StringType(), "payload": types.StringType()}


def columns(options: WriteOptions | None = None, /, **kinds: types.DataType | None) -> Columns:
    """The columns of a frame with these, and unless they are None with a channel and a payload that are texts."""
    schema = types.StructType(
        [types.StructField(name, kind) for name, kind in (TWO_TEXTS | kinds).items() if kind is not None]
    )
    return columns_of(schema, options or WriteOptions(dsn="dbname=x", queue="q"))


@given(st.lists(PAYLOADS, max_size=5))
def test_structs_are_what_the_codec_makes_of_dictionaries(payloads: list[dict[str, Any]]) -> None:
    """Byte for byte, whatever the texts hold."""
    problems: dict[int, str] = {}
    texts = json_texts(pa.array(payloads, TYPE), problems).to_pylist()
    assert texts == [JsonCodec().encode(payload).decode() for payload in payloads]
    assert problems == {}


def test_maps_are_objects() -> None:
    """Also within lists and structs."""
    kind = pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.map_(pa.string(), pa.int32()))])))
    values = pa.array([[("k", [{"x": [("y", 1)]}, None])], []], kind)
    assert json_texts(values, {}).to_pylist() == ['{"k":[{"x":{"y":1}},null]}', "{}"]


def test_values_that_json_cannot_encode_are_named_with_their_row() -> None:
    """The rows are named by their number, the values by their path, and nothing of a payload is shown."""
    kind = pa.struct({"f": pa.float64(), "t": pa.string(), "l": pa.list_(pa.float64())})
    values: Any = (
        (float("nan"), "secret", []),
        (1.0, "sec\x00ret", []),
        (1.0, "", [0.0, float("inf")]),
        (1.0, "", None),
    )
    problems: dict[int, str] = {}
    json_texts(pa.array([dict(zip("ftl", one, strict=True)) for one in values], kind), problems)
    paths = [problem.partition(":")[0] for problem in problems.values()]
    assert (list(problems), paths) == ([0, 1, 2], ["payload at $.f", "payload at $.t", "payload at $.l[1]"])
    assert not [problem for problem in problems.values() if "sec" in problem]


def test_documents_are_kept_as_they_are() -> None:
    """With payloadFormat=json a text is a document, checked and not written anew."""
    problems: dict[int, str] = {}
    texts = checked_json(pa.array(['{"a" : 1.50}', "{", '"\\u0000"', "[NaN]"]), problems).to_pylist()
    assert texts[0] == '{"a" : 1.50}'
    assert sorted(problems) == [1, 2, 3]


def test_a_row_of_each_column() -> None:
    """Times become microseconds, contents the text of a bytea, what is not given the options' own."""
    options = WriteOptions(dsn="dbname=x", queue="q", kind="embed", max_attempts=3)
    texts = types.MapType(types.StringType(), types.StringType())
    found = columns(
        options,
        At=types.TimestampType(),
        delay=types.DayTimeIntervalType(),
        priority=types.IntegerType(),
        key=types.StringType(),
        headers=texts,
    )
    batch = pa.record_batch({
        "channel": ["a", "b", "c"],
        "payload": ["x\\y", "", "ü"],
        "At": pa.array([datetime(1970, 1, 2, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
        "delay": pa.array([None, timedelta(seconds=1), None], pa.duration("us")),
        "priority": pa.array([None, None, 5], pa.int32()),
        "key": [None, "k", "l"],
        "headers": pa.array([None, [("h", "v")], []], pa.map_(pa.string(), pa.string())),
    })  # fmt: skip
    rows, problems = found.rows(batch)
    assert problems == {}
    assert dict(zip(found.staged, (column.to_pylist() for column in rows), strict=True)) == {
        "channel": ["a", "b", "c"],
        "content": ['"x\\\\\\\\y"', '""', '"ü"'],
        "at": [86_400_000_000, None, None],
        "delay": [None, 1_000_000, None],
        "priority": [None, None, 5],
        "key": [None, "k", "l"],
        "headers": [None, '{"h":"v"}', "{}"],
        "kind": ["embed"] * 3,
        "max_attempts": [3] * 3,
    }


def test_bytes_are_contents_as_they_are() -> None:
    """A codec of the user's own may have written them."""
    batch = pa.record_batch({"channel": ["a", "b"], "payload": [b"\x00\xff\\", None]})
    rows, problems = columns(payload=types.BinaryType()).rows(batch)
    assert rows[1][0].as_py() == "\\x00ff5c"
    assert list(problems) == [1]


def test_headers_are_told_as_headers() -> None:
    """Also where they are texts, which must be objects; the problem of a payload comes first."""
    texts = ['{"n" : 1}', None, "[1]", "{", '{"x": "\\u0000"}']
    batch = pa.record_batch({"channel": ["a"] * 5, "payload": ["p"] * 5, "headers": texts})
    rows, problems = columns(headers=types.StringType()).rows(batch)
    assert rows[2][:2].to_pylist() == texts[:2]
    paths = {index: problem.partition(":")[0] for index, problem in problems.items()}
    assert paths == {2: "headers at $", 3: "headers at $", 4: "headers at $.x"}
    maps = pa.array([[("h", float("nan"))]], pa.map_(pa.string(), pa.float64()))
    bad = pa.record_batch({"channel": ["a"], "payload": ["p"], "headers": maps})
    assert (
        columns(headers=types.MapType(types.StringType(), types.DoubleType()))
        .rows(bad)[1][0]
        .startswith("headers at $.h: ")
    )


def test_a_header_that_the_group_sets_is_a_bad_row() -> None:
    """The load would overwrite it; outside of groups, and within another header, it is like any other."""
    texts = ['{"group":"mine"}', '{"gro\\u0075p":1}', '{"x":{"group":1}}', '{"x":"\\u0041"}', None, '{"group":"mine"}']
    problems: dict[int, str] = {}
    check_headers(pa.array(texts), pa.array([str(uuid4())] * 5 + [None]), problems)
    assert list(problems) == [0, 1]


def test_large_texts_are_documents_too() -> None:
    """With spark.sql.execution.arrow.useLargeVarTypes a batch has large texts: they are checked and kept too."""
    options = WriteOptions(dsn="dbname=x", queue="q", payload_format="json")
    found = columns(options, key=types.StringType())
    texts = {"channel": ["a", ""], "payload": ['{"a" : 1.50}', "no JSON"], "key": ["k", None]}
    batch = pa.record_batch({name: pa.array(one, pa.large_string()) for name, one in texts.items()})
    rows, problems = found.rows(batch)
    assert rows[1][0].as_py() == '{"a" : 1.50}'
    assert problems[1].startswith("channel '' has 0 bytes")
    assert found.rows(batch.set_column(0, "channel", pa.array(["a", "b"])))[1][1].startswith("payload at $")


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ({"channel": None}, "the frame has no column 'channel'"),
        ({"payload": None}, "the frame has no column 'payload'"),
        ({"channel": types.IntegerType()}, "column 'channel' is int; make it a string"),
        ({"payload": types.IntegerType()}, "column 'payload' is int; make it a struct"),
        ({"prioritty": types.LongType()}, r"did you mean priority\?"),
        ({"tenant": types.LongType()}, "put others in payload"),
        ({"Channel": types.StringType()}, "'channel' is there twice"),
        ({"at": types.TimestampNTZType()}, "cast a timestamp_ntz"),
        (
            {"payload": types.ArrayType(types.StructType([types.StructField("d", types.DateType())]))},
            r"payload\[\]\.d is date",
        ),
        ({"payload": types.MapType(types.LongType(), types.StringType())}, "payload has keys of type bigint"),
        ({"payload": types.MapType(types.StringType(), types.DecimalType(9, 2))}, r"payload\.\* is decimal"),
    ],
)
def test_frames_that_cannot_be(kinds: dict[str, types.DataType | None], message: str) -> None:
    """The column and its type are named before any task starts."""
    with pytest.raises(BadFrame, match=message):
        columns(None, **kinds)


@pytest.mark.parametrize(
    ("kinds", "options", "problem"),
    [
        ({"group": types.StringType()}, {"on_duplicate": "replace"}, "column 'group' and onDuplicate=replace"),
        ({}, {"then": Enqueue(channel="a", payload=1)}, "the frame has no column 'group'"),
        ({}, {"on_failure": Enqueue(channel="a", payload=1)}, "the frame has no column 'group'"),
    ],
)
def test_groups_that_cannot_be(kinds: dict[str, types.DataType], options: dict[str, Any], problem: str) -> None:
    """A message that follows needs groups, and none of their members is replaced."""
    with pytest.raises(BadFrame, match=problem):
        columns(WriteOptions(dsn="dbname=x", queue="q", **options), **kinds)


def test_the_json_of_a_message_can_be_read_again() -> None:
    """What is staged is valid for whoever decodes it."""
    (text,) = json_texts(pa.array([{"a": '"\\\n\x1f\x7f€'}], pa.struct([("a", pa.string())])), {}).to_pylist()
    assert json.loads(text) == {"a": '"\\\n\x1f\x7f€'}
