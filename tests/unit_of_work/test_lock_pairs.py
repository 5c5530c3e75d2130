"""Pairs of transactions that record two verbs each: whatever they share, neither waits for the other in a circle.

Each pair runs on two real connections. One transaction stops before a statement, the other goes on until it waits for
a lock or has sent everything, then the first goes on. Both are rolled back, so that all pairs meet the same queue.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import combinations, combinations_with_replacement
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Delivery, Queue
from sqlalchemy_fairqueue.unit_of_work.sending import send
from sqlalchemy_fairqueue.unit_of_work.sessions import recorded
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE

QUEUE = Queue("documents")
_DEADLOCK = "40P01"
_HOUR = timedelta(hours=1)
SHARE = int(os.environ.get("FAIRQUEUE_LOCK_PAIRS", "48"))
"""One of so many pairs is tried; 1: all of them, by `nox -s whole`."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A queue with two channels: ids ascend as early, held, keyed, other; the second and the last are leased."""

    early: int
    held: Delivery
    keyed: int
    other: Delivery


@dataclass(frozen=True, slots=True)
class Verb:
    """A recorded call, and what it may lock or wait for: verbs with the same locks stand for each other."""

    name: str
    locks: frozenset[str]
    record: Callable[[Session, Stage], object]


def _enqueue(**words: Any) -> Callable[[Session, Stage], object]:
    return lambda session, _: QUEUE.enqueue(session, **{"channel": "x", "payload": 0, **words})


_REPLACED: dict[str, Any] = {"key": "keyed", "on_duplicate": "replace"}
VERBS = [
    Verb(name, frozenset(locks.split()), record)
    for name, locks, record in (
        ("enqueue to a new channel", "new", _enqueue(channel="n")),
        ("enqueue a key", "key", _enqueue(key="keyed")),
        ("replace", "key keyed", _enqueue(**_REPLACED)),
        ("enqueue a key for a period", "key period", _enqueue(key="period", unique_for=_HOUR)),
        ("replace for a period", "key keyed period", _enqueue(**_REPLACED, unique_for=_HOUR, unique_from="completion")),
        ("replace a leased one", "key2 held", _enqueue(key="held", on_duplicate="replace")),
        ("complete", "held", lambda s, stage: QUEUE.complete(s, stage.held)),
        ("release", "held", lambda s, stage: QUEUE.release(s, stage.held)),
        ("retry", "other", lambda s, stage: QUEUE.retry(s, stage.other)),
        ("bury", "other", lambda s, stage: QUEUE.bury(s, stage.other, reason="bad")),
        ("cancel the first", "early", lambda s, stage: QUEUE.cancel(s, stage.early)),
        ("cancel", "keyed", lambda s, stage: QUEUE.cancel(s, stage.keyed)),
        ("cancel a leased one", "held", lambda s, stage: QUEUE.cancel(s, stage.held.message_id)),
        ("purge", "x early keyed", lambda s, _: QUEUE.purge(s, "x")),
        ("pause", "x", lambda s, _: QUEUE.pause(s, "x")),
        ("resume", "x", lambda s, _: QUEUE.resume(s, "x")),
        ("configure_channel", "x", lambda s, _: QUEUE.configure_channel(s, "x", weight=2)),
        ("limit a channel", "x held", lambda s, _: QUEUE.configure_channel(s, "x", plan="p", max_concurrency=None)),
        ("pause another", "y", lambda s, _: QUEUE.pause(s, "y")),
        ("limit another", "y other", lambda s, _: QUEUE.configure_channel(s, "y", max_concurrency=9)),
        ("pause a new channel", "new", lambda s, _: QUEUE.pause(s, "n", new=True)),
        ("pause the queue", "queue", lambda s, _: QUEUE.pause(s)),
        ("configure the queue", "queue", lambda s, _: QUEUE.configure(s, defaults={"weight": 2})),
        ("record the history", "queue", lambda s, _: QUEUE.configure(s, history=True)),
        ("limit the queue", "queue held other", lambda s, _: QUEUE.configure(s, max_concurrency=9)),
        ("lift the limit of the queue", "queue", lambda s, _: QUEUE.configure(s, max_concurrency=None)),
    )
]


@dataclass(slots=True)
class Player:
    """One of the two transactions, on a connection of its own."""

    connection: Connection
    pid: int
    sent: int = 0
    stop_at: int | None = None
    stopped: Event = field(default_factory=Event)
    going: Event = field(default_factory=Event)

    def play(self, verbs: Sequence[Verb], stage: Stage) -> str | None:
        """Send the verbs as a COMMIT would, and roll back. Returns the SQLSTATE of an error."""
        self.sent = 0
        try:
            with Session(self.connection) as session:
                session.begin()
                for verb in verbs:
                    verb.record(session, stage)
                send(self.connection, recorded(session))
        except DBAPIError as error:
            return getattr(error.orig, "sqlstate", None)
        finally:
            self.connection.rollback()
        return None

    def before_statement(self, *_: object) -> None:
        """Stop before the statement of the number that was asked for."""
        self.sent += 1
        if self.sent == self.stop_at:
            self.stopped.set()
            assert self.going.wait(PATIENCE.total_seconds())


@dataclass(slots=True)
class Match:
    """Two players, and who watches them."""

    players: tuple[Player, Player]
    watch: Connection
    threads: ThreadPoolExecutor
    stage: Stage

    def statements(self, verbs: Sequence[Verb]) -> int:
        """How many statements a transaction sends."""
        player = self.players[0]
        player.stop_at = None
        assert player.play(verbs, self.stage) is None
        return player.sent

    def deadlocks(self, first: Sequence[Verb], second: Sequence[Verb], stop_at: int) -> bool:
        """Whether they deadlock if the first stops before that statement until the second waits or has sent all."""
        one, two = self.players
        one.stop_at = stop_at
        one.stopped.clear()
        one.going.clear()
        ones = self.threads.submit(one.play, first, self.stage)
        assert one.stopped.wait(PATIENCE.total_seconds()), ones.result(0)
        twos = self.threads.submit(two.play, second, self.stage)
        self._until_blocked(two, twos)
        one.going.set()
        ends = {ones.result(PATIENCE.total_seconds()), twos.result(PATIENCE.total_seconds())}
        assert ends <= {None, _DEADLOCK}, (ends, first, second)
        return _DEADLOCK in ends

    def _until_blocked(self, player: Player, end: Future[str | None]) -> None:
        blocked = text("select true from pg_stat_activity where pid = :pid and wait_event_type = 'Lock'")
        while not wait([end], timeout=0.002, return_when=FIRST_COMPLETED).done:
            if self.watch.scalar(blocked, {"pid": player.pid}):
                return


@pytest.fixture
def match(database: Database, engine: Engine) -> Iterator[Match]:
    """Two connections to a queue on its stage. A deadlock is found after 20 ms."""
    ids = {
        name: QUEUE.enqueue(
            engine, channel="y" if name == "other" else "x", payload=0, key=name, priority=9 if name == "held" else 1
        ).message_id
        or 0
        for name in ("early", "held", "keyed", "other")
    }
    QUEUE.plans.configure(engine, "p", max_cost_out=9)
    batch = {delivery.message_id: delivery for delivery in QUEUE.dequeue(engine, limit=2)}
    assert batch.keys() == {ids["held"], ids["other"]}
    stage = Stage(ids["early"], batch[ids["held"]], ids["keyed"], batch[ids["other"]])
    with contextlib.ExitStack() as stack:
        players = []
        for _ in range(2):
            own = create_engine(database.url, connect_args={"options": "-c deadlock_timeout=20ms"})
            stack.callback(own.dispose)
            connection = stack.enter_context(own.connect())
            players.append(Player(connection, connection.scalar(text("select pg_backend_pid()")) or 0))
            connection.rollback()
            event.listen(own, "before_cursor_execute", players[-1].before_statement)
        watch = stack.enter_context(database.own.connect())
        threads = stack.enter_context(ThreadPoolExecutor(2))
        match = Match((players[0], players[1]), watch, threads, stage)
        for player in players:
            # The first to send asks for the version once.
            player.play(VERBS[:1], stage)
        yield match


def _transactions() -> list[tuple[Verb, Verb]]:
    """Of the transactions with the same locks one, so that each verb is in some."""
    kinds: dict[frozenset[frozenset[str]], list[tuple[Verb, Verb]]] = {}
    for one, other in combinations(VERBS, 2):
        if one.locks != other.locks:
            kinds.setdefault(frozenset((one.locks, other.locks)), []).append((one, other))
    uses = Counter[str]()
    chosen = []
    for candidates in kinds.values():
        pair = min(candidates, key=lambda verbs: sum(uses[verb.name] for verb in verbs))
        uses.update(verb.name for verb in pair)
        chosen.append(pair)
    return chosen


def _named(*names: str) -> tuple[Verb, ...]:
    verbs = {verb.name: verb for verb in VERBS}
    return tuple(verbs[name] for name in names)


_ONCE = [
    *[
        (_named("cancel", "pause"), _named("replace", verb))
        for verb in ("purge", "pause", "resume", "configure_channel", "limit a channel")
    ],
    (_named("pause", "limit the queue"), _named("pause the queue", "pause")),
    (_named("pause another", "lift the limit of the queue"), _named("pause", "pause another")),
    (_named("purge", "cancel a leased one"), _named("cancel", "cancel a leased one")),
    (_named("limit a channel", "cancel"), _named("cancel", "complete")),
    (_named("replace", "limit the queue"), _named("replace", "complete")),
    (_named("enqueue to a new channel", "pause"), _named("pause a new channel", "pause")),
]


def test_pairs_that_did(match: Match) -> None:
    """These shared locks in two orders once."""
    for pair in _ONCE:
        for first, second in (pair, pair[::-1]):
            for stop_at in range(2, match.statements(first) + 1):
                assert not match.deadlocks(first, second, stop_at), (pair, f"interrupted before statement {stop_at}")


def test_no_pair_deadlocks(match: Match) -> None:
    """Transactions that share two things take them in one order, wherever one of them is interrupted."""
    transactions = _transactions()
    assert {verb.name for one in transactions for verb in one} == {verb.name for verb in VERBS}
    pairs = []
    for one, other in combinations_with_replacement(transactions, 2):
        ones, others = (frozenset[str]().union(*(verb.locks for verb in verbs)) for verbs in (one, other))
        # A circle has two.
        if len(ones & others) > 1:
            pairs.append((one, other))
    found = []
    for one, other in pairs[::SHARE]:
        for stop_at in range(2, match.statements(one) + 1):
            if match.deadlocks(one, other, stop_at):
                found.append(([verb.name for verb in one], [verb.name for verb in other]))
                break
    assert found == []
