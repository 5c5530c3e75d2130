"""Connections and statements of commands that read many queues."""

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


def test_connections(cli: Cli, engine: Engine) -> None:
    """A command opens as many connections for many queues as for one."""
    commands = ("stats",), ("channels",), ("top", "--once")
    counts = []
    for queues in (_OTHERS[:1], _OTHERS):
        for queue in queues:
            enqueue(engine, "a", queue=queue)
        for words in commands:
            opened: list[None] = []
            with listening("do_connect", lambda *_, to=opened: to.append(None)):
                found = cli(*words)
            assert found.status == 0
            assert len(queues) == 1 or all(queue.name in found.out for queue in queues)
            counts.append(len(opened))
    assert 0 not in counts
    assert counts[:3] == counts[3:]


def test_statements(cli: Cli, engine: Engine) -> None:
    """A command reads the counts of all queues by one statement, and more of those alone that have messages."""
    enqueue(engine, "a")
    for number in range(20):
        Queue(f"idle-{number}").configure(engine, max_concurrency=1)
    for queue in _OTHERS[:2]:
        enqueue(engine, "a", queue=queue)
    sent: list[str] = []
    for words, for_busy in {"stats": 0, "top --once": 3, "doctor": 0}.items():
        sent.clear()
        with listening("before_cursor_execute", lambda *arguments: sent.append(arguments[2])):
            found = cli(*words.split())
        assert found.status in {0, 1}, found.err
        assert sum("fq_stats(" in statement for statement in sent) == 1
        assert sum("fq_channel_stats(" in statement for statement in sent) == for_busy


def test_no_right_to_read(bare_cli: Cli, engine: Engine, database: Database) -> None:
    """What the server refuses for many queues is told as it is for one."""
    for queue in _OTHERS[:3]:
        enqueue(engine, "a", queue=queue)

    with role(database, f"{database.name}_guest", "select on fq_queue, fq_channel") as url:
        database.execute(f'revoke execute on function fq_stats, fq_channel_stats from "{database.name}_guest"')
        for command in ("stats", "channels"):
            for words in (("--queue", "q0"), ()):
                found = bare_cli(command, "--json", "--database-url", url, *words)
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
