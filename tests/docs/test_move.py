"""The statement that moves jobs of procrastinate."""

from tests.docs.pages import DOCS, blocks
from tests.fixtures.database import Database


def test_jobs_of_procrastinate_are_moved(database: Database) -> None:
    """Those that wait are enqueued with their arguments and times, and are gone there; others stay."""
    [statement] = [block.text for block in blocks(DOCS / "howto" / "move.md") if block.language == "sql"]
    database.execute(
        "create table procrastinate_jobs (id bigserial, queue_name text, task_name text, lock text, args jsonb,"
        " status text, scheduled_at timestamptz)"
    )
    database.execute(
        "insert into procrastinate_jobs (queue_name, task_name, lock, args, status, scheduled_at) values"
        " ('mails', 'send', null, '{\"to\": 1}', 'todo', null), ('mails', 'send', 'alice', '{}', 'todo', '2100-01-01'),"
        " ('mails', 'send', null, '{}', 'doing', null)"
    )
    statement = statement.rstrip().rstrip(";").replace(":", "\\:")
    assert [tuple(row) for row in database.rows(statement)] == [("created", 2)]
    assert database.value("select count(*) from procrastinate_jobs") == 1
    moved = database.rows(
        "select c.name, m.kind, convert_from(m.content, 'UTF8') from fq_message m"
        " join fq_channel c on c.id = m.channel_id order by m.id"
    )
    assert [tuple(row) for row in moved] == [("mails", "send", '{"to": 1}'), ("alice", "send", "{}")]
    assert list(database.rows(statement)) == []
