"""Queue under the fuzzer: a producer, a consumer and an operator, each with the rights of its grant alone."""

from dataclasses import dataclass, field
from functools import cached_property

import psycopg
from sqlalchemy import create_engine

from sqlalchemy_fairqueue import BytesCodec, Delivery, PayloadError, Queue
from tests.queue.row_grammar import QUEUE, Call, Grammar
from tests.roles.conftest import SCHEMA, Actor, Installation

LIMIT = 10
"""Messages that a dequeue asks for."""
_OWN_WORDS = {"QF001"}
_OUTSIDE = "QF007"


@dataclass
class Fuzzed:
    """A queue, and those who use it.

    Attributes:
        jobs: The installation.
        seed: The seed of all calls.
        taken: Messages that calls asked for and that were not refused.
        asked: Messages that calls asked for.
    """

    jobs: Installation
    seed: int
    queue: Queue = field(default_factory=lambda: Queue(QUEUE, schema=SCHEMA, codec=BytesCodec()))
    taken: int = 0
    asked: int = 0

    def __post_init__(self) -> None:
        self.grammar = Grammar(self.seed)
        self.producer = self.jobs.role("producer")
        self.jobs.grant(self.producer.name, "producer", queues=[QUEUE])
        # Their own engines make a connection for each call.
        self.consumer, self.operator = (
            create_engine(self.jobs.role(kind, kind).url, pool_size=3) for kind in ("consumer", "operator")
        )
        self.queue.configure(self.operator, history=True)
        # Calls name message 1 more often than others; this one is nobody's.
        self.bystander()
        [first] = self.queue.dequeue(self.consumer)
        self.queue.complete(self.consumer, first)

    @cached_property
    def _connection(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(_conninfo(self.producer), autocommit=True)

    def close(self) -> None:
        """Let all connections go."""
        self._connection.close()
        self.consumer.dispose()
        self.operator.dispose()

    def send(self) -> None:
        """Pass the next call. A refusal is in words of ours, or of the parser of a value."""
        call = self.grammar.call()
        self.asked += call.messages
        try:
            cursor = self._connection.execute(call.sql.encode(), call.parameters)
        except (psycopg.DataError, UnicodeEncodeError, psycopg.errors.StatementTooComplex):
            return
        except psycopg.Error as error:
            if error.sqlstate in _OWN_WORDS or (error.sqlstate == _OUTSIDE and call.queue != QUEUE):
                return
            raise AssertionError(f"seed {self.seed}: {_shown(call)} is refused by {error}") from error
        self.taken += call.messages
        if call.messages:
            self.grammar.ids += [one[1] for one in cursor.fetchall() if isinstance(one[1], int) and one[2]]
            del self.grammar.ids[:-50]

    def bystander(self) -> int:
        """Enqueue a message of somebody else, to a channel of its own."""
        found = self.queue.enqueue_now(self.jobs.owner, channel="bystander", kind="work", payload=b"?")
        assert found is not None
        return found

    def channels(self) -> int:
        """How many channels the queue has."""
        found: int = self.jobs.database.value(f"select count(*) from {SCHEMA}.fq_channel where queue = '{QUEUE}'")
        return found

    def most_calls(self) -> int:
        """So many dequeues bring a message of the bystander, whatever else is ready: two turns of each channel."""
        return 2 * self.channels() // LIMIT + 2

    def serve(self, bystander: int) -> int:
        """Dequeue and settle at random until the message has come; how many dequeues that took."""
        calls, seen = 0, False
        while not seen:
            batch = self.queue.dequeue(self.consumer, limit=LIMIT)
            calls += 1
            for delivery in batch:
                seen |= delivery.message_id == bystander
                self._settle(delivery)
            assert seen or calls < self.most_calls(), f"seed {self.seed}: {calls} dequeues without the bystander"
        return calls

    def _settle(self, delivery: Delivery) -> None:
        try:
            assert delivery.payload == delivery.content
        except PayloadError:
            assert delivery.headers is None
        engine, text = self.consumer, self.grammar.text
        match self.grammar.random.randrange(4):
            case 0:
                self.queue.retry(engine, delivery, error=text())
            case 1:
                self.queue.bury(engine, delivery, reason=text(), error=text())
            case 2:
                self.queue.release(engine, delivery)
            case _:
                self.queue.complete(engine, delivery)

    def inspect(self) -> None:
        """All that an operator can read of a queue, each of which reads every row that it concerns."""
        engine = self.operator
        found = self.queue.stats(engine)
        assert found.ready >= 0
        assert found.scheduled >= 0
        for channel in self.queue.channels(engine):
            assert channel.queue == QUEUE
            assert channel.backlog >= 0
        assert all(one.message_id > 0 for one in self.queue.dead_letters(engine, limit=1000))
        assert self.queue.quarantined(engine, limit=1000) == []

    def lift_limits(self) -> None:
        """Let every channel be served as fast as it can be, whatever policy its first message brought."""
        for channel in self.queue.channels(self.operator):
            self.queue.configure_channel(self.operator, channel.channel, rate=None, max_concurrency=None)


def _conninfo(actor: Actor) -> str:
    return actor.url.set(drivername="postgresql").render_as_string(hide_password=False)


def _shown(call: Call) -> str:
    return f"{call.sql[:60]} {call.parameters!r:.500}"
