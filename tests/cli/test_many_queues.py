"""Connections and statements of commands that read many queues."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, text

from sqlalchemy_fairqueue import Queue
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options
from sqlalchemy_fairqueue.database.engines import run
from tests.cli.conftest import Cli
from tests.cli.messages import enqueue
from tests.cli.test_installation import role
from tests.fixtures.database import Database
from tests.fixtures.listeners import listening

_OTHERS = [Queue(f"q{number}") for number in range(10)]


@contextmanager
def _connections() -> Iterator[list[None]]:
    """One entry for each connection that is opened in the block."""
    opened: list[None] = []

    def count(*_: object) -> None:
        opened.append(None)

    with listening("do_connect", count):
        yield opened


@pytest.mark.parametrize("words", [("stats",), ("channels",), ("top", "--once")])
def test_connections(cli: Cli, engine: Engine, words: tuple[str, ...]) -> None:
    """A command opens as many connections for many queues as for one."""
    enqueue(engine, "a")
    with _connections() as for_one:
        assert cli(*words).status == 0
    for queue in _OTHERS:
        enqueue(engine, "a", queue=queue)

    with _connections() as for_many:
        found = cli(*words)

    assert found.status == 0
    for queue in _OTHERS:
        assert queue.name in found.out
    assert 0 < len(for_many) == len(for_one)


@pytest.mark.parametrize(("words", "for_busy"), [("stats", 0), ("top --once", 3), ("doctor", 0)])
def test_statements(cli: Cli, engine: Engine, words: str, for_busy: int) -> None:
    """A command reads the counts of all queues by one statement, and more of those alone that have messages."""
    enqueue(engine, "a")
    for number in range(40):
        Queue(f"idle-{number}").configure(engine, max_concurrency=1)
    for queue in _OTHERS[:2]:
        enqueue(engine, "a", queue=queue)
    sent: list[str] = []

    def count(*arguments: object) -> None:
        sent.append(str(arguments[2]))

    with listening("before_cursor_execute", count):
        found = cli(*words.split())

    assert found.status in {0, 1}, found.err
    assert sum("fq_stats(" in statement for statement in sent) == 1
    assert sum("fq_channel_stats(" in statement for statement in sent) == for_busy


@pytest.mark.parametrize("command", ["stats", "channels"])
def test_no_right_to_read(bare_cli: Cli, engine: Engine, database: Database, command: str) -> None:
    """What the server refuses for many queues is told as it is for one."""
    for queue in _OTHERS:
        enqueue(engine, "a", queue=queue)

    with role(database, f"{database.name}_guest", "select on fq_queue, fq_channel") as url:
        database.execute(f'revoke execute on function fq_stats, fq_channel_stats from "{database.name}_guest"')
        outcomes = [bare_cli(command, "--json", "--database-url", url, *words) for words in (("--queue", "q0"), ())]

    for found in outcomes:
        assert (found.status, found.error["kind"]) == (5, "privilege_missing")
        assert "permission denied for function fq_" in found.err


def test_nothing_is_prepared(named: Database, engine: Engine) -> None:
    """A connection that asks the same of many queues prepares no statement: a pooler may pass it to others."""
    assert named.name
    for queue in _OTHERS:
        enqueue(engine, "a", queue=queue)

    with open_installation(Options()) as installation:
        queues = installation.queues()
        prepared = run(
            installation.engine,
            lambda connection: [
                *(queue.stats(connection) for queue in queues),
                connection.scalar(text("select count(*) from pg_prepared_statements")),
            ],
        )[-1]

    assert prepared == 0
