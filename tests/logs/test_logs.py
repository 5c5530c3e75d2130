"""The log has fields by one list, as JSON where that is wanted, and Sentry knows which message failed."""

import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sentry_sdk
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import AsyncWorker, Delivery, Queue, Release, RetryPolicy, Worker
from sqlalchemy_fairqueue.logs import FIELDS, JsonFormatter
from sqlalchemy_fairqueue.sentry import async_sentry_scope, sentry_scope

_ROOT = Path(sqlalchemy_fairqueue.__file__).parent
_PAGE = _ROOT.parent / "docs" / "tracing.md"
_ONCE = RetryPolicy(max_attempts=1)


def _extras() -> Iterator[str]:
    """The keys of what is passed as extra."""
    for source in map(Path.read_text, _ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(source)) if "extra=" in source else ():
            if isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.Dict):
                yield from (str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))
            if isinstance(node, ast.keyword) and node.arg == "extra" and isinstance(node.value, ast.DictComp):
                yield from ast.literal_eval(node.value.generators[0].iter)


def test_the_list_is_whole() -> None:
    """Every field that the library logs is in the list, and the list has no other. None has the name of an attribute
    that logging gives to records: that would be an error.
    """
    assert set(_extras()) == set(FIELDS)
    assert not FIELDS.keys() & (vars(logging.makeLogRecord({})).keys() | {"message", "asctime"})


@pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs")
def test_the_page_has_the_list() -> None:
    """The documentation has each field with its meaning."""
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", _PAGE.read_text(), re.MULTILINE))
    assert {name: rows.get(name) for name in FIELDS} == FIELDS


def test_lines_of_a_failed_handler(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """A dead letter is a line of JSON with the fields of its message, whatever its names hold."""
    queue = Queue("documents")

    @queue.handler("parse", retry=_ONCE)
    def parse(_: Delivery) -> None:
        raise ValueError("no such page")

    message_id = queue.enqueue(engine, channel='two\n"lines"', payload=1, kind="parse").message_id
    Worker(engine, queue, concurrency=1, name="reader").run(drain=True)
    lines = [JsonFormatter().format(record) for record in caplog.records]
    assert not any("\n" in line for line in lines)
    [dead] = [one for one in map(json.loads, lines) if "is a dead letter now" in one["message"]]
    expected = {
        "level": "warning", "logger": "sqlalchemy_fairqueue.worker", "worker": "reader", "queue": "documents",
        "channel": 'two\n"lines"', "kind": "parse", "message_id": message_id, "attempt": 1,
    }  # fmt: skip
    assert {name: dead[name] for name in expected} == expected


def test_json_of_any_record() -> None:
    """Fields of the application, exceptions and trace ids are written where a record has them."""
    record = logging.makeLogRecord(
        {"msg": "%s", "args": ("x",), "tenant": object, "otelTraceID": "abc", "otelSpanID": "0"}
    )
    try:
        dict[str, int]()["k"]
    except KeyError as error:
        record.exc_info = (KeyError, error, error.__traceback__)
    found = json.loads(JsonFormatter("tenant", "absent").format(record))
    assert (found["message"], found["tenant"], found["trace_id"]) == ("x", "<class 'object'>", "abc")
    assert "KeyError: 'k'" in found["exception"]
    assert not {"absent", "span_id", "queue"} & found.keys()


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """What Sentry would get: kept, and not sent."""
    kept: list[Any] = []
    options: Any = {"before_send": lambda event, _: kept.append(event), "send_client_reports": False}
    client = sentry_sdk.Client(dsn="https://k@localhost/1", default_integrations=False, **options)
    sentry_sdk.get_global_scope().set_client(client)
    yield kept
    sentry_sdk.get_global_scope().set_client(None)


async def test_sentry(events: list[Any], engine: Engine, async_engine: AsyncEngine) -> None:
    """The exception of a handler is reported with its message; an outcome is none, and nothing is left behind."""
    plain, other = Queue("documents"), Queue("mails")

    @plain.handler("parse", retry=_ONCE)
    def parse(delivery: Delivery) -> None:
        if delivery.channel == "calm":
            raise Release
        raise ValueError("no such page")

    @other.handler("send", retry=_ONCE)
    async def send(_: Delivery) -> None:
        raise OSError("no answer")

    first = plain.enqueue(engine, channel="customer-7", payload=1, kind="parse").message_id
    Worker(engine, plain, concurrency=1, middleware=[sentry_scope]).run(drain=True)
    second = other.enqueue(engine, channel="customer-8", payload=1, kind="send").message_id
    await AsyncWorker(async_engine, other, concurrency=1, middleware=[async_sentry_scope]).run(drain=True)
    sentry_sdk.capture_message("of nobody")
    one, two, nobodys = events
    for event, error, queue, kind, channel, message_id in (
        (one, "ValueError", "documents", "parse", "customer-7", first),
        (two, "OSError", "mails", "send", "customer-8", second),
    ):
        assert event["exception"]["values"][0]["type"] == error
        assert event["tags"] == {"fairqueue.queue": queue, "fairqueue.kind": kind}
        assert event["contexts"]["fairqueue"] == {"channel": channel, "message_id": message_id, "attempt": 1}
    assert "fairqueue" not in nobodys["contexts"]
