"""fq_enqueue_one: one message from SQL, from a trigger for example, and errors that say which argument was wrong."""

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from sqlalchemy import Engine, create_engine

from sqlalchemy_fairqueue import Context, Delivery, Queue, Worker
from tests.fixtures.database import Database
from tests.roles.conftest import Installation, jobs
from tests.sql.client import Kernel, refused

__all__ = ["jobs"]

_ONE = "select fq_enqueue_one(p_queue => 'q', p_channel => 'a', p_payload => '{{\"n\": 1}}', {})"


def _call(**words: str) -> str:
    """A call of fq_enqueue_one with some arguments instead of good ones."""
    given = {"queue": "'q'", "channel": "'a'", "payload": "'{}'", **words}
    return f"select fq_enqueue_one({', '.join(f'p_{name} => {value}' for name, value in given.items())})"


_BAD = (
    ("queue", "null", "null"),
    ("channel", "null", "null"),
    ("channel", "repeat('x', 513)", f"'{'x' * 80}'..., 513 bytes"),
    ("payload", "null", "null"),
    ("kind", "null", "null"),
    ("kind", "''", "''"),
    ("key", "''", "''"),
    ("key", "repeat('ä', 257)", f"'{'ä' * 80}'..., 514 bytes"),
    ("key", "null, p_on_duplicate => 'replace'", "null"),
    ("on_duplicate", "'keep', p_key => 'k'", "'keep'"),
    ("delay", "'-1 s'", "'-00:00:01'"),
    ("delay", "'101 years'", "'101 years'"),
    ("delay", "'1 s', p_at => '2030-01-01 00:00Z'", "1000000, and at is 1893456000000000"),
    ("at", "'10000-01-01 00:00Z'", "'10000-01-01 00:00:00+00'"),
    ("at", "'infinity'", "'infinity'"),
    ("priority", "0", "0"),
    ("cost", "1000000001", "1000000001"),
    ("headers", "'[1]'", "'[1]'"),
    ("headers", "jsonb_build_object('h', repeat('x', 65536))", "longer than 65,536 bytes"),
    ("max_attempts", "0", "0"),
    ("unique_for", "'0 s', p_key => 'k'", "'00:00:00'"),
    ("unique_for", "'101 years', p_key => 'k'", "'101 years'"),
    ("unique_from", "'end', p_unique_for => '1 day', p_key => 'k'", "'end'"),
    ("unique_from", "null", "null"),
    ("key", "null, p_unique_for => '1 day'", "null"),
)


def test_a_bad_value_is_named(kernel: Kernel) -> None:
    """The error names the argument and its value, and nothing is added."""
    kernel.rows("set time zone 'UTC'")
    for known, (argument, value, shown) in product((False, True), _BAD):
        if known:
            kernel.enqueue("a")
        with refused() as error:
            kernel.rows(_call(**{argument: value}))
        assert (error.value.diag.message_primary or "").endswith(f"{argument} is {shown}")


def test_the_bad_one_of_many_is_named(kernel: Kernel) -> None:
    """fq_enqueue says which message it is, which argument, and its value."""
    bad: dict[str, tuple[list[Any], str]] = {
        "channels": ([None], "channel is null"),
        "kinds": ([None], "kind is null"),
        "contents": ([None], "content is null"),
        "delays": ([-1], "delay is -1"),
        "ats": ([2**62], f"at is {2**62}"),
        "priorities": ([0], "priority is 0"),
        "keys": ([""], "key is ''"),
        "max_attempts": ([0], "max_attempts is 0"),
        "costs": ([0], "cost is 0"),
    }
    good: dict[str, Any] = {"channels": "a", "kinds": "k", "contents": b"", "costs": 1}
    for place, (argument, (wrong, shown)) in product((1, 3), bad.items()):
        values = [good.get(argument)] * (place - 1) + wrong
        words: dict[str, Any] = {"channels": ["a"] * place, argument: values}
        with refused() as error:
            kernel.enqueue(*words.pop("channels"), **words)
        assert error.value.diag.message_primary == f"message {place} of fq_enqueue has a bad value: {shown}"
        assert error.value.diag.message_hint
    assert kernel.value("select count(*) from fq_message") == 0


def test_what_it_returns(kernel: Kernel) -> None:
    """The id of what was added or rewritten; null if nothing was; an error where that was asked for."""
    configure = "select fq_configure_channel('q', 'a', %(policy)s::jsonb, null, true)"
    kernel.rows(configure, policy='{"max_backlog": 1}')
    first = kernel.value(_ONE.format("p_key => 'k'"))
    assert kernel.value(_ONE.format("p_key => 'k'")) is None
    assert kernel.value(_ONE.format("p_key => 'k', p_on_duplicate => null")) is None
    assert kernel.value(_ONE.format("p_key => 'k', p_on_duplicate => 'replace', p_kind => 'new'")) == first
    with pytest.raises(psycopg.errors.UniqueViolation, match=f"key 'k' .* message {first} "):
        kernel.rows(_ONE.format("p_key => 'k', p_on_duplicate => 'raise'"))
    with refused("QF005", match="channel 'a' of queue 'q' is full"):
        kernel.rows(_ONE.format("p_kind => 'more'"))
    kernel.rows(configure, policy='{"on_full": "drop"}')
    assert kernel.value(_ONE.format("p_kind => 'more'")) is None
    assert kernel.rows("select id, kind from fq_message") == [{"id": first, "kind": "new"}]


@pytest.mark.parametrize("begins", ["enqueue", "completion"])
def test_a_period(kernel: Kernel, begins: str) -> None:
    """A key with a period stays taken after its message has ended, for so long from its enqueue or its end on."""
    one = _ONE.format(f"p_key => 'k', p_unique_for => '1 day', p_unique_from => '{begins}'")
    until = "select expires_at - fq_now() from fq_key_period"
    assert kernel.value(one) is not None
    assert (kernel.value(until) is None) is (begins == "completion")
    kernel.rows("delete from fq_message")
    assert kernel.value(one) is None
    assert 86_000_000_000 < kernel.value(until) <= 86_400_000_000
    kernel.rows("update fq_key_period set expires_at = 0")
    assert kernel.value(one) is not None


def test_every_argument_is_passed(kernel: Kernel) -> None:
    """Times, priorities, costs, headers and attempts are those of the call; intervals and times become microseconds."""
    kernel.value(_ONE.format("""p_delay => '1 day 2 s', p_headers => '{"h": [1]}', p_max_attempts => 3, p_cost => 7"""))
    kernel.value(_ONE.format("p_at => '2030-01-01 00:00:00.000001Z', p_priority => 5, p_kind => 'other'"))
    names = ("kind", "headers", "max_attempts", "cost", "priority")
    first, second = kernel.rows("select *, dequeue_at - enqueued_at as delay from fq_message order by id")
    assert [first[name] for name in (*names, "delay")] == ["default", {"h": [1]}, 3, 7, None, 86_402_000_000]
    assert [second[name] for name in (*names, "dequeue_at")] == ["other", None, 20, None, 5, 1_893_456_000_000_001]


def test_handlers_and_jobs_get_what_a_row_holds(database: Database, engine: Engine) -> None:
    """A handler of a JSON queue gets the row as a dict; a typed job converts the columns to its own types."""
    queue = Queue("q")
    seen: list[object] = []

    @queue.handler
    def changed(delivery: Delivery) -> None:
        seen.append(delivery.payload)

    @queue.job
    def invoice(context: Context, *, bill: UUID, total: Decimal, day: date, at: datetime, note: str | None) -> None:
        seen.append((context.delivery.channel, bill, total, day, at, note))

    database.execute(
        "create table bill (bill uuid, customer text, total numeric, day date, at timestamptz, note text);"
        "create function bill_enqueue() returns trigger language plpgsql as $$ begin"
        " perform fq_enqueue_one(p_queue => 'q', p_channel => new.customer, p_payload => to_jsonb(new));"
        " perform fq_enqueue_one(p_queue => 'q', p_channel => new.customer, p_kind => 'invoice',"
        "   p_payload => to_jsonb(new) - 'customer');"
        " return null; end $$;"
        "create trigger bill_enqueue after insert on bill for each row execute function bill_enqueue()"
    )
    number, at = uuid4(), datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
    database.rows(
        "insert into bill values (:id, 'ada', 12.50, '2026-05-01', :at, 'naïve \U0001f600 \"quoted\"')",
        id=number, at=at,
    )  # fmt: skip
    Worker(engine, queue).run(drain=True)
    note = 'naïve \U0001f600 "quoted"'
    plain, typed = sorted(seen, key=lambda one: isinstance(one, tuple))
    assert isinstance(plain, dict)
    assert (plain["bill"], plain["total"], plain["customer"], plain["note"]) == (str(number), 12.5, "ada", note)
    assert typed == ("ada", number, Decimal("12.50"), date(2026, 5, 1), at, note)


@pytest.mark.installed
@pytest.mark.parametrize("definer", [False, True], ids=["producers", "others"])
def test_roles(jobs: Installation, definer: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A trigger runs for a producer; with its owner's rights, for a role that has nothing to do with the queue."""
    actor = jobs.role("writer", *([] if definer else ["producer"]))
    with jobs.owner.begin() as connection:
        connection.exec_driver_sql("create table bill (customer text)")
        connection.exec_driver_sql(
            "create function bill_enqueue() returns trigger language plpgsql "
            f"{'security definer' if definer else ''} set search_path = pg_catalog, pg_temp as $$ begin"
            " perform jobs.fq_enqueue_one(p_queue => 'q', p_channel => new.customer, p_payload => to_jsonb(new));"
            " return null; end $$"
        )
        connection.exec_driver_sql(
            "create trigger bill_enqueue after insert on bill for each row execute function bill_enqueue()"
        )
        connection.exec_driver_sql(f'grant insert on bill to "{actor.name}"')
    with actor.engine.begin() as connection:
        connection.exec_driver_sql("insert into bill values ('ada')")
    [delivery] = Queue("q", schema="jobs").dequeue(jobs.owner)
    assert (delivery.channel, delivery.payload) == ("ada", {"customer": "ada"})


def test_it_wakes_an_idle_consumer(database: Database, kernel: Kernel) -> None:
    """The commit notifies a consumer that waits, unless the call says not to."""
    engine = create_engine(database.url)
    with engine.begin() as connection:
        connection.exec_driver_sql("select fq_wait('q', 'idle', null, 60000000)")
    with psycopg.connect(database.conninfo, autocommit=True) as listener:
        listener.execute("listen fairqueue")
        for notify, heard in ((False, 0), (True, 1)):
            kernel.rows(_ONE.format(f"p_notify => {notify}"))
            kernel.commit()
            assert len(list(listener.notifies(timeout=0 if heard == 0 else 30, stop_after=1))) == heard
    engine.dispose()
