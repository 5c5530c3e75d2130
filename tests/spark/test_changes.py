"""Following changes: each enqueue and each end of a message once, in the order of commits, from a replication slot."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sqlalchemy_fairqueue.embedded import Server
from sqlalchemy_fairqueue.spark.errors import BadOption, DataLoss, PipelineError
from sqlalchemy_fairqueue.spark.reading import change_stream, slot
from sqlalchemy_fairqueue.spark.reading.changes import Change, Commit, PgOutput
from sqlalchemy_fairqueue.spark.reading.offsets import OriginChanged
from sqlalchemy_fairqueue.spark.reading.readers import LIMITS_ARE_KNOWN
from sqlalchemy_fairqueue.spark.reading.slot import SlotUnusable, changes_setup, slot_state
from tests.docs.pages import DOCS, blocks
from tests.fixtures.database import Database
from tests.spark.conftest import installed
from tests.spark.streams import Follow, Follower
from tests.sql.client import HOUR, Kernel, OpenKernel, kernel, open_kernel

__all__ = ["kernel", "open_kernel"]

_PAGE = DOCS / "spark.md"

pytestmark = [
    pytest.mark.skipif(not LIMITS_ARE_KNOWN, reason="PySpark 4.1 tells no source where a micro-batch begins"),
    pytest.mark.skipif(not _PAGE.is_file(), reason="the installed wheel is tested without the docs"),
]


@pytest.fixture
def slot_name(database: Database) -> Iterator[str]:
    """A slot made as the page says, and dropped after the test: the database can be dropped then."""
    name = f"changes_{database.name[-40:].lower()}"
    for statement in changes_setup(name):
        database.execute(statement)
    yield name
    # Tests may have dropped it.
    database.execute(
        "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = :name", name=name
    )


@pytest.fixture
def follow(slot_name: str, follow: Follow) -> Follow:
    """Begin a query from that slot, or go on with one."""
    return partial(follow, table="changes", slot=slot_name)


def _told(follower: Follower) -> list[tuple[Any, ...]]:
    """The changes of one micro-batch, and the messages that they are of."""
    return [(row["change"], row["message_id"], row["outcome"]) for row in follower.batch()]


def _run(kernel: Kernel, *statements: str) -> None:
    for statement in statements:
        kernel.rows(statement)


def _hands(kernel: Kernel, limit: int = 10) -> dict[int, Any]:
    return {hand.id: hand for hand in kernel.dequeue(limit).hands}


def test_each_enqueue_and_end_is_one_row(kernel: Kernel, open_kernel: OpenKernel, follow: Follow) -> None:
    """In the order of commits, whatever the order of ids; nothing of a rollback, a delivery, a release or a retry."""
    kernel.set_queue(history=True)
    follower = follow()
    early, undone = open_kernel(), open_kernel()
    one = early.enqueue("a")[0].message_id
    undone.enqueue("c")
    two = kernel.enqueue("b", keys=["k"])[0].message_id
    early.commit()
    undone.rollback()
    assert one < two
    assert _told(follower) == [("enqueued", two, None), ("enqueued", one, None)]
    assert _told(follower) == []
    hands = _hands(kernel)
    kernel.release(hands[one])
    kernel.retry(hands[two], error="again")
    hands = _hands(kernel)
    assert _told(follower) == []
    kernel.complete(hands[one])
    kernel.bury(hands[two], reason="poison")
    kernel.rows("select fq_redrive('q', array[%(id)s]::bigint[])", id=two)
    assert _told(follower) == [("ended", one, "completed"), ("ended", two, "buried"), ("redriven", two, None)]


def test_messages_that_end_without_a_delivery(kernel: Kernel, open_kernel: OpenKernel, follow: Follow) -> None:
    """Cancelled, purged and moved messages are told, and what a transaction takes back itself is not."""
    kernel.set_queue(history=True)
    follower = follow()
    waiting, leased, purged, moved = (added.message_id for added in kernel.enqueue("a", "b", "c", "d", keys=["k"] * 4))
    (replaced,) = kernel.enqueue("d", keys=["k"], on="replace")
    assert replaced.message_id == moved
    assert len(follower.batch()) == 4
    kernel.cancel(waiting)
    kernel.rows("select fq_purge_channel('q', 'c')")
    kernel.rows("select fq_move_message('q', %(id)s, 'e', null, false)", id=moved)
    hands = _hands(kernel)
    kernel.cancel(leased)
    kernel.release(hands[leased])
    ends = [("ended", waiting, None), ("ended", purged, None), ("moved", moved, None), ("ended", leased, "cancelled")]
    assert _told(follower) == ends
    both = open_kernel()
    (short,) = both.enqueue("a")
    both.cancel(short.message_id)
    both.commit()
    kernel.enqueue("a")
    assert [change for change, *_ in _told(follower)] == ["enqueued"]


def test_a_row_has_what_the_wal_tells(kernel: Kernel, slot_name: str, follow: Follow) -> None:
    """All columns of an enqueue; of an end those of the history, or of the dead letter; never a content."""
    follower = follow()
    contents = [b"secret-1", b"secret-2"]
    kernel.enqueue("a", "b", keys=["k", None], costs=[7, None], delays=[HOUR, None], contents=contents)
    first, second = follower.batch()
    (message,) = kernel.rows("select * from fq_message where key = 'k'")
    assert (first["queue"], first["channel"], first["channel_id"]) == ("q", "a", message["channel_id"])
    assert (first["kind"], first["key"], first["cost"], second["cost"]) == ("work", "k", 7, 1)
    assert (first["due_at"] - first["enqueued_at"]).total_seconds() == 3600
    assert first["lsn"] == second["lsn"] == follower.checkpoint["lsn"]
    assert abs(first["committed_at"] - second["enqueued_at"]).total_seconds() < 60
    kernel.complete(*_hands(kernel).values())
    (unrecorded,) = follower.batch()
    assert (unrecorded["outcome"], unrecorded["queue"], unrecorded["channel"]) == (None, None, None)
    kernel.set_queue(history=True)
    kernel.enqueue("b", "b")
    completed, buried = _hands(kernel).values()
    kernel.complete(completed)
    kernel.bury(buried, reason="poison")
    ended = [row for row in follower.batch() if row["change"] == "ended"]
    assert [(row["queue"], row["channel"], row["kind"], row["cost"]) for row in ended] == [("q", "b", "work", 1)] * 2
    sent = b"".join(slot.messages(kernel.connection, slot_name, follower.checkpoint["lsn"]))
    assert b"work" in sent
    assert not [form for form in (b"secret", b"secret".hex().encode()) if form in sent]


def test_rows_of_a_queue_or_channel(kernel: Kernel, open_kernel: OpenKernel, follow: Follow) -> None:
    """Rows that are known to be of others are left out; an end of which the WAL tells no queue is of every queue."""
    other = open_kernel(autocommit=True)
    other.queue = "mails"
    mine, others = follow(queue="q"), follow(queue="mails")
    channel = follow(queue="q", channels="b, c", columns="channel")
    a, b = (added.message_id for added in kernel.enqueue("a", "b"))
    (mail,) = other.enqueue("b")
    kernel.cancel(a)
    assert [row["message_id"] for row in mine.rows(mine.end())] == [a, b, a]
    assert [row["message_id"] for row in others.rows(others.end())] == [mail.message_id, a]
    assert channel.rows(channel.end()) == [{"channel": "b"}, {"channel": None}]


def test_a_batch_comes_again_until_it_is_committed(kernel: Kernel, follow: Follow) -> None:
    """Reads leave the slot where it is; ``commit`` moves it, and then what is before it is gone for every stream."""
    follower = follow()
    before = follower.checkpoint
    kernel.enqueue("a")
    kernel.enqueue("b")
    end = follower.end()
    rows = follower.rows(end)
    assert len(rows) == 2
    again = follow(before)
    assert (again.rows(end), follow().rows(end)) == (rows, rows)
    again.reader.commit(end)
    again.reader.commit(end)
    assert follow(end).batch() == []
    for late in (again.end, lambda: again.rows(end)):
        with pytest.raises(DataLoss, match=r"was moved to .*: changes between them are lost; .* for one stream"):
            late()
    kernel.enqueue("c")
    assert len(follow(before, failOnDataLoss=False).batch()) == 1


def test_batches_are_bounded(kernel: Kernel, follow: Follow) -> None:
    """By transactions: one with more changes than the bound is a batch; AvailableNow ends where the WAL ended."""
    follower = follow(maxOffsetsPerTrigger=2)
    assert follower.reader.getDefaultReadLimit().max_rows == 2
    for count in (1, 1, 1, 5, 1):
        kernel.enqueue(*["a"] * count)
    assert [len(follower.batch(2)) for _ in range(4)] == [2, 1, 5, 1]
    kernel.enqueue(*["a"] * 3)
    kernel.enqueue("a")
    last = follow(follower.checkpoint)
    last.reader.prepareForTriggerAvailableNow()
    kernel.enqueue("late")
    assert [len(last.batch(2)) for _ in range(3)] == [3, 1, 0]
    assert len(follow(last.checkpoint).batch()) == 1


def test_under_concurrent_writers_each_change_comes_once(
    kernel: Kernel, open_kernel: OpenKernel, follow: Follow
) -> None:
    """Transactions that overlap, commit in another order and roll back, while readers stop and start anew."""
    chance = random.Random(1)  # noqa: S311 - the same disorder each time
    writers = [open_kernel() for _ in range(4)]
    follower, seen = follow(), []
    for step in range(60):
        writer = chance.choice(writers)
        writer.enqueue(*chance.choices("abc", k=2))
        if chance.random() < 0.5:
            (writer.rollback if chance.random() < 0.3 else writer.commit)()
        if step % 6 == 5:
            seen += follower.batch(5)
            follower.reader.stop()
            follower = follow(follower.checkpoint)
    for writer in writers:
        writer.commit()
    while rows := follower.batch(5):
        seen += rows
    held = [row["id"] for row in kernel.rows("select id from fq_message order by id")]
    found = [row["message_id"] for row in seen]
    assert sorted(found) == held != found
    ends = [row["lsn"] for row in seen]
    assert ends == sorted(ends)


def test_wal_without_changes_is_passed(
    kernel: Kernel, slot_name: str, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tables' WAL moves the stream by empty batches, so that the server does not keep it; rarely, not always."""
    monkeypatch.setattr(change_stream, "_PASSED_BYTES", 1 << 16)
    monkeypatch.setattr(change_stream, "_REST", 0)
    follower = follow()
    begun = follower.checkpoint["lsn"]
    kernel.rows("create table big as select repeat(md5(i::text), 10) as text from generate_series(1, 1000) i")
    # The very end of the WAL may have to be flushed first.
    while follower.checkpoint["lsn"] < begun + (1 << 16):
        assert follower.batch() == []
    kernel.enqueue("a")
    # Other tests' WAL may come before it.
    while not (batch := follower.batch()):
        pass
    assert len(batch) == 1
    report = follower.reader.reportLatestOffset()
    assert report["unread_bytes"] <= report["kept_bytes"]
    state = slot_state(kernel.connection, slot_name, "public")
    assert state.confirmed >= begun + (1 << 16)


def test_another_database_is_refused(kernel: Kernel, follow: Follow) -> None:
    """A checkpoint of another cluster stops the stream; accepted by name, it goes on, unless it is ahead of the server:
    after a failover that lost the last transactions, what commits next would be taken for read.
    """
    follower = follow()
    kernel.enqueue("a")
    foreign = follower.checkpoint | {"system": "4711"}
    with pytest.raises(OriginChanged, match="is of cluster 4711") as refusal:
        follow(foreign).end()
    accepting = {"acceptedOrigin": refusal.value.found_origin}
    assert len(follow(foreign, **accepting).batch()) == 1
    with pytest.raises(BadOption, match="no offset of changes"):
        follow({"lsn": 5}).end()
    ahead = foreign | {"lsn": follower.end()["lsn"] + (1 << 30)}
    with pytest.raises(OriginChanged, match="has only come to"):
        follow(ahead, **accepting).end()


def test_functions_of_others_are_not_called(kernel: Kernel, follow: Follow) -> None:
    """Functions of slots take a name, so that one of another role's with a text would fit better."""
    trap = "language plpgsql as $$ begin raise exception 'trapped'; end $$"
    kernel.rows(f"create function pg_replication_slot_advance(text, pg_lsn) returns bigint {trap}")
    kernel.rows(
        "create function pg_logical_slot_peek_binary_changes(text, pg_lsn, integer, text, text, text, text)"
        f" returns table (lsn pg_lsn, xid xid, data bytea) {trap}"
    )
    follower = follow()
    for _ in range(2):
        kernel.enqueue("a")
        assert len(follower.batch()) == 1


def test_a_slot_that_cannot_be_read(
    kernel: Kernel, database: Database, slot_name: str, follow: Follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thing that is missing is told, with the statement that mends it."""

    def refused(words: str, name: str = slot_name) -> None:
        with pytest.raises(SlotUnusable, match=words):
            follow(slot=name).end()

    # A temporary slot is in use as long as its session lasts.
    create = "select pg_create_logical_replication_slot('{}', '{}', true)"
    refused(r"there is no replication slot 'no_slot'; run create publication \"no_slot\" for table", "no_slot")
    _run(kernel, *changes_setup("only_published")[:2])
    refused("there is no replication slot 'only_published'; run select pg_create_logical", "only_published")
    _run(kernel, create.format("other_plugin", "test_decoding"), create.format("unpublished", "pgoutput"))
    refused("has the plugin 'test_decoding', and not pgoutput", "other_plugin")
    refused("do not publish fq_message, fq_dead_letter, fq_history; drop the slot", "unpublished")
    with closing(psycopg.connect(database.conninfo, dbname="postgres", autocommit=True)) as elsewhere:
        elsewhere.execute(create.format("elsewhere", "pgoutput").encode())
        refused("is of database 'postgres', and the connection leads to", "elsewhere")
    monkeypatch.setattr(slot, "_BUSY_SECONDS", 0)
    _run(kernel, *changes_setup("held")[:2], create.format("held", "pgoutput"))
    kernel.enqueue("a")
    refused(r"is in use: .* for PID \d+; a slot is for one stream: end the other", "held")
    kernel.rows(f"drop publication {slot_name}")
    refused("do not publish fq_message, fq_dead_letter;")
    kernel.enqueue("a")
    kernel.rows(changes_setup(slot_name)[0])
    refused("changes that were not published: .* before the slot")


def test_a_role_that_may_not_decode(kernel: Kernel, database: Database, slot_name: str, follow: Follow) -> None:
    """It needs the attribute REPLICATION, and on the tables only what finds the installation and the channels."""
    role = f"{slot_name}_reader"
    grants = (f"grant select on fq_channel to {role}", f"grant execute on function fq_version() to {role}")
    _run(kernel, f"create role {role} login", *grants)
    try:
        kernel.enqueue("a")
        follower = follow(at=Database(database.url.set(username=role)))
        with pytest.raises(SlotUnusable, match=r"may not read replication slot .*; alter role \.\.\. replication"):
            follower.end()
        kernel.rows(f"alter role {role} replication")
        assert [row["channel"] for row in follower.batch()] == ["a"]
    finally:
        _run(kernel, f"drop owned by {role}", f"drop role {role}")


def test_a_slot_whose_wal_was_removed_and_a_standby(private_server: Callable[..., Server]) -> None:
    """Beyond ``max_slot_wal_keep_size`` the server gives the slot up: an error. So is a standby."""
    sizes = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    server = private_server(settings={"wal_level": "logical"} | sizes)
    database = installed(server)
    begin = partial(Follower, database, table="changes", slot="given_up")
    with closing(psycopg.connect(database.conninfo, autocommit=True)) as connection:
        kernel = Kernel(connection)
        _run(kernel, *changes_setup("given_up"))
        follower = begin()
        kernel.enqueue("a")
        _run(kernel, *["select pg_switch_wal()", "checkpoint"] * 3)
    with pytest.raises(DataLoss, match="has removed WAL that replication slot 'given_up' had not read"):
        follower.end()
    follower.reader.stop()
    (server.data_directory / "standby.signal").touch()
    server.restart()
    with pytest.raises(SlotUnusable, match="the server is a standby, and changes are read from the primary"):
        begin()


def test_a_query_of_spark_that_is_stopped_anywhere(
    spark: SparkSession, kernel: Kernel, database: Database, slot_name: str, tmp_path: Path
) -> None:
    """It fails between a micro-batch and its commit, stops and starts anew: each change came once, in order."""
    batches: dict[int, list[tuple[Any, ...]]] = {}
    runs: list[int] = []

    def keep(frame: DataFrame, batch: int) -> None:
        rows = [tuple(row) for row in frame.select("lsn", "change", "message_id", "channel").collect()]
        # A batch that comes again has the same rows.
        assert batches.setdefault(batch, rows) == rows
        runs.append(batch)
        if runs.count(batch) == 1 and batch == 1:
            raise ValueError("the sink fails after it wrote, so that Spark does not know that the batch is done")

    # The page's frame.
    (text,) = (one.text for one in blocks(_PAGE) if one.language == "python" and '"slot"' in one.text)
    text = text.replace('"dsnEnv", "QUEUE_DSN"', f'"dsn", "{database.conninfo}"')
    text = text.replace("queue_changes", slot_name).replace("100000", "3")

    def query() -> StreamingQuery:
        names: dict[str, Any] = {"spark": spark}
        exec(compile(text, str(_PAGE), "exec"), names)  # noqa: S102 - our own page
        frame: DataFrame = names["changes"]
        writing = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
        return writing.trigger(availableNow=True).start()

    def confirmed() -> int:
        return slot_state(kernel.connection, slot_name, "public").confirmed

    for channel in "abcdefg":
        kernel.enqueue(channel)
    failing = query()
    with pytest.raises(Exception, match="the sink fails"):
        failing.awaitTermination(300)
    assert confirmed() == max(row[0] for row in batches[0])
    kernel.complete(*_hands(kernel, 1).values())
    assert query().awaitTermination(300)
    assert (runs, [len(rows) for rows in batches.values()]) == ([0, 1, 1, 2], [3, 3, 2])
    # Spark commits the last batch once it has another one.
    assert confirmed() == max(row[0] for row in batches[1])
    told = [row for rows in batches.values() for row in rows]
    held = [row["id"] for row in kernel.rows("select id from fq_message order by id")]
    assert [row[2] for row in told[:7]] == sorted({told[7][2], *held})
    assert [row[3] for row in told] == [*"abcdefg", None]
    assert [row[0] for row in told] == sorted({row[0] for row in told})
    assert told[7][1] == "ended"


def test_the_page_has_the_statements() -> None:
    """The statements of the page are those that the function returns."""
    (page,) = (one.text for one in blocks(_PAGE) if one.language == "sql" and "pgoutput" in one.text)
    assert " ".join(page.split()) == "; ".join(changes_setup("queue_changes")) + ";"


@pytest.mark.parametrize("name", ["", "A", "x" * 56, "x', 'pgoutput'); drop table users; --"])
def test_statements_for_what_is_no_name(name: str) -> None:
    """A name that PostgreSQL does not take comes into no statement."""
    with pytest.raises(BadOption, match="option slot"):
        changes_setup(name)


def test_changes_need_read_limits(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not read by a PySpark that does not say where a micro-batch begins."""
    monkeypatch.setattr(change_stream, "LIMITS_ARE_KNOWN", False)
    with pytest.raises(BadOption, match=r"table 'changes' needs PySpark 4\.2 or later"):
        follow()


_BEGIN = "4200000000016f50c0000304298b56a265000002f2"
_RELATION = (
    "52000040007075626c69630074006400030169640000000014ffffffff006ec3a46d650000000019ffffffff006e0000000017ffffffff"
)
_NULL = "49000040004e0003740000000137740000000561e298830a6e"
_EMPTY = "49000040004e00037400000001387400000000740000000135"
_DELETE = "44000040004b00037400000001376e6e"
_UPDATE = "55000040004e00037400000001387400000000740000000136"
_COMMIT = "430000000000016f50c000000000016f50f0000304298b56a265"
_TRUNCATE = "54000000010000004000"


def test_inserts_deletes_and_commits() -> None:
    """Names and texts in UTF-8, nulls and empty texts apart, and the key of a deleted row; all other kinds are none."""
    messages = (_BEGIN, _RELATION, _NULL, _EMPTY, _DELETE, _UPDATE, _COMMIT, _TRUNCATE)
    output = PgOutput()
    decoded = [output.decoded(bytes.fromhex(one)) for one in messages]
    assert [(one.table, one.is_insert, one.row()) for one in decoded if isinstance(one, Change)] == [
        ("t", True, {"id": "7", "näme": "a☃\n", "n": None}),
        ("t", True, {"id": "8", "näme": "", "n": "5"}),
        ("t", False, {"id": "7", "näme": None, "n": None}),
    ]
    assert [one.number("id") for one in decoded if isinstance(one, Change)] == [7, 8, 7]
    commit = Commit(0x16F50F0, 946_684_800_000_000 + 0x0304298B56A265)
    assert [one for one in decoded if not isinstance(one, Change)] == [None, None, None, commit, None]


@pytest.mark.parametrize("message", [_NULL, _RELATION[:40], _COMMIT[:30], _COMMIT + "00"])
def test_what_is_no_message_of_pgoutput(message: str) -> None:
    """A row of a table that was not described, and bytes that are cut or too many."""
    with pytest.raises(PipelineError, match=r"a message of pgoutput cannot be read: .*; report it as a bug"):
        PgOutput().decoded(bytes.fromhex(message))


def test_a_row_that_is_cut() -> None:
    """Or that has no such number."""
    output = PgOutput()
    output.decoded(bytes.fromhex(_RELATION))
    row, cut = output.decoded(bytes.fromhex(_NULL)), output.decoded(bytes.fromhex(_NULL[:20]))
    assert isinstance(row, Change)
    assert isinstance(cut, Change)
    for call in (lambda: row.number("n"), cut.row, lambda: cut.number("n")):
        with pytest.raises(PipelineError, match="cannot be read"):
            call()
