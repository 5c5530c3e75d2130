"""Reading once: what arrives in Spark is what the tables hold, of one instant."""

import doctest
import inspect
from contextlib import closing
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StructType
from sqlalchemy import Engine

from sqlalchemy_fairqueue import ChannelPolicy, Queue
from sqlalchemy_fairqueue.errors import FairQueueError
from sqlalchemy_fairqueue.spark import register
from sqlalchemy_fairqueue.spark.errors import BadFrame, BadOption, DataLoss
from sqlalchemy_fairqueue.spark.reading.lag import history_lag
from sqlalchemy_fairqueue.spark.source import FairQueueSource
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.fixtures.waits import Waits
from tests.spark.conftest import Target
from tests.spark.recorded import COLUMNS, DAY, NOON, add, held, seen, table
from tests.spark.streams import edge


@pytest.fixture
def database(database_alone: Database) -> Database:
    """On a server without other tests, whose transactions would keep rows of the history back."""
    return database_alone


def parts(database: Database, **options: object) -> Any:
    """A reader and its parts, planned now; each part is read when the test says so."""
    given = {"dsn": database.conninfo} | {name: str(value) for name, value in options.items()}
    made = FairQueueSource(given).reader(FairQueueSource(given).schema())
    return made, made.partitions()


def rows(made: Any, partitions: Any) -> list[dict[str, Any]]:
    """What the parts give."""
    return [row for part in partitions for batch in made.read(part) for row in batch.to_pylist()]


def read(database: Database, **options: object) -> list[dict[str, Any]]:
    """Plan and read at once."""
    return rows(*parts(database, **options))


def by(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows in the order of a column."""
    return sorted(rows, key=lambda row: row[name])


def test_the_history_arrives_row_for_row(spark: SparkSession, target: Target) -> None:
    """Every column of every row is what the table has: nulls, empty texts, quotes, ends of lines, microseconds."""
    add(target.database, 40)
    add(target.database, 8, finished=NOON - DAY)
    frame = spark.read.format("fairqueue").options(**target.options, numPartitions="3").load()
    assert tuple(frame.columns) == COLUMNS
    assert frame.rdd.getNumPartitions() == 3
    assert seen(frame) == held(target.database)


def test_columns_channels_and_times_are_chosen(database: Database) -> None:
    """Options leave out columns and rows before they leave the server."""
    add(database, 6)
    add(database, 6, finished=NOON - DAY)
    add(database, 6, queue="other")
    assert read(database, columns="message_id, id", channels="customer-1", queue="other") == [
        {"message_id": 1, "id": 13},
        {"message_id": 4, "id": 16},
    ]
    since = (NOON + timedelta(microseconds=3)).isoformat()
    until = (NOON + timedelta(microseconds=5)).replace(tzinfo=None).isoformat()
    frame_columns = read(database, since=since, until=until, columns="message_id", queue="documents", numPartitions=4)
    assert [row["message_id"] for row in frame_columns] == [3, 4]
    assert read(database, columns="error", queue="none") == []
    nulls = read(database, columns="consumer", queue="other", channels="customer-0,customer-1")
    assert [row["consumer"] for row in nulls] == [None, None, 'worker, "two"', 'worker, "two"']


def test_any_text_arrives_as_it_is(database: Database) -> None:
    """Tabs, ends of lines, backslashes before any letter, what COPY writes for null, and nothing at all."""
    letters = [chr(code) for code in [*range(1, 128), 0x85, 0x2028, 0x1F600]]
    texts = ["", "\\N", "\\.", "\\\\N", "\\\\\\n\n", *(f"{one}\\{one}\\\\{one}" for one in letters), *letters]
    add(database, len(texts))
    with closing(psycopg.connect(database.conninfo)) as connection, connection.cursor() as cursor:
        cursor.executemany("update fq_history set error = %s where message_id = %s", zip(texts, count(1), strict=False))
        connection.commit()
    assert sorted(row["error"] for row in read(database, columns="error")) == sorted(texts)
    rows = by("message_id", read(database, columns="message_id,error,consumer"))
    assert [row["error"] for row in rows] == texts
    assert [row["consumer"] for row in rows[:4]] == [None, 'worker, "two"'] * 2


def test_instants_need_no_order(database: Database) -> None:
    """Each instant is right with and without the others, also where clocks went backwards."""
    add(database, 2)
    database.execute("update fq_history set ready_at = enqueued_at - 7, finished_at = -1 where message_id = 1")
    names = ("enqueued_at", "ready_at", "started_at", "finished_at")
    expected = [dict(zip(names, row[8:12], strict=True)) for row in table(database)]
    for some in (names, *((name,) for name in names)):
        found = by("id", read(database, columns=",".join(("id", *some))))
        assert [{name: row[name] for name in some} for row in found] == [
            {name: row[name] for name in some} for row in expected
        ]


def test_all_tasks_read_one_instant(database: Database) -> None:
    """What was not committed when the read was planned comes in no task, whenever that runs; the rest in one."""
    add(database, 10)
    with closing(psycopg.connect(database.conninfo)) as early, closing(psycopg.connect(database.conninfo)) as late:
        add(early, 2)
        add(late, 2)
        add(database, 5)
        expected = [row[0] for row in table(database)]
        made, planned = parts(database, numPartitions=4)
        assert len(planned) == 4
        found = rows(made, planned[:2])
        early.commit()
        late.rollback()
        add(database, 5)
        found += rows(made, planned[2:])
    assert sorted(row["id"] for row in found) == expected


def test_rows_that_move_to_their_day_are_read_once(database: Database, clock: Clock) -> None:
    """Housekeeping moves rows from the default partition to their day between two tasks: each comes once."""
    add(database, 12, finished=clock.now())
    made, planned = parts(database, numPartitions=3)
    found = rows(made, planned[:1])
    assert database.value("select count(*) from fq_keep_history(1)") == 2
    assert database.value("select count(*) from fq_history_default") == 0
    found += rows(made, planned[1:])
    assert sorted(row["id"] for row in found) == list(range(1, 13))


def test_days_that_go_while_they_are_read_are_noticed(database: Database, clock: Clock) -> None:
    """A day that is dropped between plan and task is an error, or a warning if asked; of other days it is neither."""
    began = clock.now()
    add(database, 3, finished=began)
    database.execute("select fq_keep_history(0)")
    made, planned = parts(database)
    tolerant, same = parts(database, failOnDataLoss=False)
    other, elsewhere = parts(database, since=(began + 5 * DAY).isoformat())
    clock.advance(40 * DAY)
    database.execute("select fq_keep_history(0)")
    with pytest.raises(DataLoss, match=f"from {began:%Y-%m-%d} until .* were pruned .*; go on without them with"):
        rows(made, planned)
    assert rows(tolerant, same) == rows(other, elsewhere) == read(database) == []


def test_between_two_offsets(database: Database) -> None:
    """Behind one offset up to another the rows are those that a stream gives: below the open transactions."""
    add(database, 4)
    first = edge(database)
    add(database, 4)
    second = edge(database)
    with closing(psycopg.connect(database.conninfo)) as writer:
        add(writer, 1)
        add(database, 4)
        assert [row["id"] for row in read(database, startingOffsets=first, numPartitions=3)] == [5, 6, 7, 8]
        lag = history_lag(first, dsn=database.conninfo)
        assert (lag.rows, lag.held_rows, lag.held_by) == (4, 4, writer.info.backend_pid)
        assert str(lag.latest) == second
        writer.commit()
    assert [row["id"] for row in read(database, endingOffsets=second)] == list(range(1, 9))
    assert [row["id"] for row in read(database, startingOffsets=second)] == list(range(9, 14))
    assert len(read(database, startingOffsets="earliest", endingOffsets="latest")) == 13


def test_live_tables(database: Database, engine: Engine) -> None:
    """Messages, channels and dead letters come with their types; contents as bytes."""
    queue = Queue("documents")
    queue.plans.configure(engine, "gold", ChannelPolicy(rate="1/2s", weight=3))
    queue.configure_channel(engine, "a", plan="gold")
    queue.enqueue(engine, channel="a", payload={"n": 1}, kind="parse", priority=5, headers={"trace": "x"}, cost=7)
    queue.enqueue(engine, channel="b", payload={"n": 2}, kind="index", key="k")
    (dead,) = [one for one in queue.dequeue(engine, limit=2, lease=timedelta(minutes=1)) if one.channel == "b"]
    queue.bury(engine, dead, reason="poison")
    (message,) = read(database, table="messages", queue="documents")
    assert (message["channel"], message["content"], message["headers"]) == ("a", b'{"n":1}', '{"trace": "x"}')
    assert (message["priority"], message["due_at"], message["deliveries"]) == (5, None, 1)
    assert (message["cost"], message["group"], message["cancelled"]) == (7, None, False)
    assert message["lease_id"] is not None
    channels = read(database, table="channels", columns="channel,rate_interval,weight,paused_at,plan")
    assert sorted(channels, key=lambda row: str(row["channel"])) == [
        {"channel": "a", "rate_interval": timedelta(seconds=2), "weight": 3, "paused_at": None, "plan": "gold"},
        {"channel": "b", "rate_interval": timedelta(0), "weight": 1, "paused_at": None, "plan": None},
    ]
    (letter,) = read(database, table="dead_letters", channels="b", numPartitions=2)
    assert (letter["content"], letter["key"], letter["reason"]) == (b'{"n":2}', "k", "poison")
    assert letter["died_at"] >= letter["enqueued_at"]


def test_a_read_that_is_left_or_refused_leaves_nothing_behind(database: Database, waits: Waits) -> None:
    """A task that needs only some rows ends its connection; what the server refuses is said with what was tried."""
    add(database, 60_000)
    made, (part,) = parts(database)
    batches = made.read(part)
    assert 0 < next(batches).num_rows < 60_000
    batches.close()
    waits.until("select where not exists (select from pg_stat_activity where application_name like 'fairqueue spark%')")
    made, (part,) = parts(database)
    database.execute("alter table fq_history rename column error to fault")
    with pytest.raises(FairQueueError, match=r"cannot read table history: column h\.error does not exist"):
        rows(made, [part])


_ONCE: list[tuple[dict[str, str], str]] = [
    ({"table": "leases"}, "option table is 'leases'"),
    ({"columns": "id,colour"}, "option columns names 'colour'"),
    ({"columns": "id,id"}, "names a column twice: id, id"),
    ({"numPartitions": "0"}, "option numPartitions is 0"),
    ({"table": "messages", "since": "2026-01-01"}, "option since is for the history, and table is 'messages'"),
    ({"since": "yesterday"}, "option since is 'yesterday'"),
    ({"since": "2026-01-02", "until": "2026-01-02"}, "since '2026-01-02' is not before until '2026-01-02'"),
    ({"startingOffsets": "first"}, "option startingOffsets is 'first'"),
    ({"startingOffsets": '{"xid": 5}'}, r"option startingOffsets is \{'xid': 5\}"),
    ({"startingOffsets": "latest"}, "startingOffsets latest or endingOffsets earliest leave nothing to read"),
    ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger is for streams"),
    ({"table": "changes", "slot": "a"}, "table 'changes' can only be followed as a stream"),
]
_FOLLOWED: list[tuple[dict[str, str], str]] = [
    ({"table": "messages"}, "table 'messages' cannot be followed as a stream"),
    ({"endingOffsets": "latest"}, "option endingOffsets is for reading once"),
    ({"since": "2026-01-01"}, "option since is for reading once"),
    ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger is 0"),
    ({"table": "changes"}, "option slot is for table 'changes', which needs it"),
    ({"slot": "changes"}, "option slot is for table 'changes', .* table is 'history'"),
    ({"table": "changes", "slot": "A b"}, "option slot is 'A b'"),
    ({"table": "changes", "slot": "a", "numPartitions": "2"}, "option numPartitions is not for table 'changes'"),
]


@pytest.mark.parametrize(
    ("way", "options", "words"), [*(("reader", *one) for one in _ONCE), *(("streamReader", *one) for one in _FOLLOWED)]
)
def test_wrong_options_are_refused_on_the_driver(way: str, options: dict[str, str], words: str) -> None:
    """Before anything is connected to, the error names the option and its value."""
    given = {"dsn": "postgresql://nobody@nowhere.invalid/none"} | options
    with pytest.raises(BadOption, match=words):
        getattr(FairQueueSource(given), way)(FairQueueSource(given).schema())


def test_a_schema_of_the_user_chooses_columns() -> None:
    """A schema that the user gives chooses columns by name and must have their types."""
    for schema, words in (
        (StructType().add("id", IntegerType()), "column 'id' as int, and table history has it as bigint"),
        (StructType().add("colour", IntegerType()), "column 'colour'"),
        (StructType(), "has no columns"),
        (StructType().add("error", "string", nullable=False), "column 'error' as never null"),
    ):
        with pytest.raises(BadFrame, match=words):
            FairQueueSource({"dsn": "postgresql:///none"}).reader(schema)


def test_spark_knows_which_columns_are_never_null(spark: SparkSession, target: Target) -> None:
    """The history's columns are nullable as the table's are, or as the user's schema says, which takes what comes.
    Durations and binaries are Spark's own types.
    """
    live = spark.read.format("fairqueue").options(**target.options)
    assert live.option("table", "channels").load().collect() == []
    frame = live.option("table", "messages").option("columns", "content,due_at").load()
    assert frame.dtypes == [("content", "binary"), ("due_at", "timestamp")]
    add(target.database, 3)
    source = spark.read.format("fairqueue").options(**target.options)
    nullable = {field.name for field in source.load().schema if field.nullable}
    assert nullable == {"consumer", "error", "group"}
    optional = (
        "select attname from pg_attribute where attrelid = 'fq_history'::regclass and attnum > 0 and not attnotnull"
    )
    assert {row.attname.removesuffix("_id") for row in target.database.rows(optional)} == nullable
    frame = source.schema("id bigint, error string, message_id bigint not null").load()
    assert sorted(tuple(row) for row in frame.collect()) == [
        (i, row[13], row[4]) for i, row in enumerate(table(target.database), 1)
    ]


def test_the_example_runs(spark: SparkSession, database: Database, engine: Engine) -> None:
    """The data source reads a table of a queue."""
    names = {
        "register": register,
        "spark": spark,
        "engine": engine,
        "queue": Queue("documents"),
        "dsn": database.conninfo,
    }
    reported: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    example = inspect.getdoc(register) or ""
    runner.run(doctest.DocTestParser().get_doctest(example, names, "register", None, 0), out=reported.append)
    assert (runner.tries, runner.failures) == (4, 0), "".join(reported)
