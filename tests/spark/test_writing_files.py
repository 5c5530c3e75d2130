"""Text files become messages as they were written, or not at all."""

import csv
import io
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sqlalchemy_fairqueue.spark import enqueue
from sqlalchemy_fairqueue.spark.writing import text_files
from tests.spark.conftest import Target

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=9)
Load = Callable[..., list[tuple[Any, ...]]]


@given(
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4),
    # Python 3.11 leaves a carriage return bare in lines that end with a newline: nobody could tell it from an end.
    st.sampled_from([("\r\n", csv.QUOTE_MINIMAL), ("\r\n", csv.QUOTE_ALL), ("\n", csv.QUOTE_ALL)]),
)
def test_csv_is_read_as_it_was_written(rows: list[tuple[str, str]], dialect: tuple[str, Any]) -> None:
    """Quotes, commas, backslashes and line endings of any kind within fields."""
    text = io.StringIO()
    end, quoting = dialect
    csv.writer(text, lineterminator=end, quoting=quoting).writerows([("channel", "payload"), *rows])
    found = list(text_files._csv(False, text.getvalue()))
    assert [(row["channel"], json.loads(row["payload"])) for row in found] == rows


@pytest.fixture
def load(spark: SparkSession, target: Target, tmp_path: Path) -> Load:
    """Enqueue the text of a file, and give what is in the queue then: ``load("json", text)``."""

    def run(file_format: str, text: str, *, json_payload: bool = False) -> list[tuple[Any, ...]]:
        path = tmp_path / f"messages.{file_format}"
        path.write_text(text, newline="")
        frame = text_files.read_messages(spark, str(path), file_format, json_payload=json_payload)
        enqueue(frame, payload_format="json", **target.options)
        rows = target.database.rows(
            "select c.name, convert_from(m.content, 'UTF8'), m.kind, m.headers::text, m.key, m.max_attempts,"
            " m.dequeue_at, m.enqueued_at from fq_message m join fq_channel c on c.id = m.channel_id order by c.name"
        )
        return [tuple(row) for row in rows]

    return run


def test_json_lines(load: Load) -> None:
    """Payloads and headers as they were written, each on its own; times, priorities and keys in all their forms."""
    rows = load(
        "json",
        '{"channel": "a", "payload": {"b" : 1.50, "a": null}, "headers": {"n": 1, "t": "x"}, "max_attempts": 3}\r\n'
        '{"channel": "b", "payload": "text", "at": "2100-01-01T00:00:00Z", "kind": "k", "key": null}\n\n'
        '{"CHANNEL": "c", "payload": [{}], "delay": "5m", "key": "u"}\n{"channel": "d", "payload": 1, "priority": 7}',
    )
    assert [row[:6] for row in rows] == [
        ("a", '{"b" : 1.50, "a": null}', "default", '{"n": 1, "t": "x"}', None, 3),
        ("b", '"text"', "k", None, None, 20),
        ("c", "[{}]", "default", None, "u", 20),
        ("d", "1", "default", None, None, 20),
    ]
    assert rows[1][6] == 4_102_444_800_000_000
    assert rows[2][6] - rows[2][7] == timedelta(minutes=5) // timedelta(microseconds=1)
    assert rows[3][6] == -7


def test_csv_of_documents_and_of_all_columns(load: Load) -> None:
    """Empty fields are none; a payload of text is text, or with json_payload the document that it is."""
    text = (
        "\ufeffChannel,payload,headers,at,delay,priority,key,kind,max_attempts\r\n"
        'a,"{""a"":  ""x,\\""y""}","{""n"":1}",,,5,k,,2\r\n'
        "b,2,,2100-01-01 02:00+02:00,,,,,\r\n"
    )
    first, second = load("csv", text, json_payload=True)
    assert first[:7] == ("a", '{"a":  "x,\\"y"}', "default", '{"n": 1}', "k", 2, -5)
    assert second[:7] == ("b", "2", "default", None, None, 20, 4_102_444_800_000_000)
    assert [row[1] for row in load("csv", "channel,payload\nc,2\n")[2:]] == ['"2"']


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('channel,payload\na,"b\nc,d\n', "line 3: unexpected end of data"),
        ("channel,payload\na\n", "line 2: 1 fields under 2 names"),
        ("channel,payload,payload\na,b,c\n", "line 2: a name is there twice in channel, payload, payload"),
        ("channel,payload,tenant\na,b,c\n", "line 1: column 'tenant' is unknown"),
        ("channel,payload,priority\na,b,high\n", "line 2: priority: invalid literal"),
        ('{"channel": "a", "payl', "a line of 22 characters: Unterminated string"),
        ('{"channel": "a", "payload": 1} {"channel": "b", "payload": 2}', "Extra data"),
        ('[{"channel": "a", "payload": 1}]', "it is a list, and no object; give a JSON object a line"),
        ('{"channel": "a", "payload": 1, "payload": 2}', "'payload' is there twice"),
        ('{"channel": "a", "Channel": "b", "payload": 1}', "column 'channel' is there twice"),
        ('{"channel": "a", "payload": 1, "prioritty": 2}', "did you mean priority"),
        ('{"channel": 5, "payload": 1}', "channel: 5 is no text"),
        ('{"channel": "\\ud800", "payload": 1}', "channel: 'utf-8' codec can't encode"),
        ('{"channel": "a", "payload": 1, "priority": 1.5}', "priority: 1.5 is no whole number"),
        ('{"channel": "a", "payload": 1, "at": "tomorrow"}', "at: Invalid isoformat string: 'tomorrow'"),
        ('{"channel": "a", "payload": 1, "delay": "99999999999d"}', "delay: '99999999999d' is no duration"),
    ],
)
def test_what_cannot_be_read_is_told(text: str, words: str) -> None:
    """With the line, or where lines are read apart from each other with its length; nothing of a payload."""
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        list((text_files._csv if text.startswith("channel") else text_files._json)(False, text))
