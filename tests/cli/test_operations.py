"""Statements of docs/operations.md."""

import re
from pathlib import Path

import pytest
from sqlalchemy import Engine

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import Queue
from tests.cli.conftest import Cli, install_into
from tests.cli.messages import enqueue, lease
from tests.fixtures.database import Database

_PAGE = Path(sqlalchemy_fairqueue.__file__).parents[1] / "docs" / "operations.md"
_TEXT = _PAGE.read_text() if _PAGE.is_file() else ""
_BLOCKS = re.findall(r"(?<!<!-- not run -->\n)```sql\n(.*?)```", _TEXT, re.DOTALL)
_QUEUE = Queue("documents", schema="queue")

pytestmark = pytest.mark.skipif(not _TEXT, reason="the installed wheel is tested without the docs")


def test_statements_run(cli: Cli, named: Database, engine: Engine) -> None:
    """Every statement runs as it stands, and leaves a queue that works."""
    named.execute("create schema queue")
    install_into(named, "queue")
    _QUEUE.configure(engine, history=True)
    enqueue(engine, "a", "a", queue=_QUEUE)
    _QUEUE.complete(engine, lease(engine, queue=_QUEUE))
    named.execute("alter sequence queue.fq_history_id_seq restart")
    named.execute("update queue.fq_history set recorded_xid = '1000000000000'")

    assert len(_BLOCKS) == 2
    for block in _BLOCKS:
        for statement in block.split(";\n"):
            if statement:
                named.execute(statement)
    assert cli("doctor", "--repair", "--yes", "--schema", "queue").status == 0

    enqueue(engine, "a", queue=_QUEUE)
    _QUEUE.complete(engine, lease(engine, queue=_QUEUE))
    assert named.value("select max(id) from queue.fq_history") == 3
    found = cli("doctor", "--json", "--schema", "queue").document["findings"]
    assert {one["level"] for one in found if one["check"] in {"drift", "sequences", "times", "leases"}} == {"ok"}
    assert [one["values"] for one in found if "foreign" in one["values"]] == []
