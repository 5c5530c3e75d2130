"""Verbs of a queue, found by what they take first, and calls of them all."""

import inspect
from collections.abc import Generator, Iterator
from contextlib import suppress
from datetime import timedelta
from operator import attrgetter
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Enqueue, Queue
from tests.fixtures.database import Database
from tests.queue.damage import lose

_FACETS = ("plans", "limits", "schedules", "dead_letters", "groups", "admin")
_DAY = timedelta(days=1)
Steps = Generator[tuple[Any, ...], Any, None]


def verbs() -> set[str]:
    """The methods of a queue that take a session, connection or engine first, those of facets as ``plans.list``."""
    found = _verbs_of(Queue)
    for facet in _FACETS:
        found |= {f"{facet}.{name}" for name in _verbs_of(type(getattr(Queue("documents"), facet)))}
    return found - {"group"}


def _verbs_of(owner: type) -> set[str]:
    members = inspect.getmembers(owner, inspect.isfunction)
    taken = {name: [*inspect.signature(method).parameters] for name, method in members if not name.startswith("_")}
    return {name for name, names in taken.items() if names[1:2] and names[1] in {"where", "session", "engine"}}


def call(queue: Queue, verb: str, where: object, *arguments: Any) -> Any:
    """Call a verb; dicts among the arguments are those by name."""
    given = [one for one in arguments if not isinstance(one, dict)]
    named = {name: value for one in arguments if isinstance(one, dict) for name, value in one.items()}
    return attrgetter(verb)(queue)(where, *given, **named)


def perform(queue: Queue, engine: Engine, database: Database) -> Iterator[tuple[str, Any]]:
    """Call each verb on an engine, most of them several times: the verbs and their answers."""
    steps, answer = steps_of(queue, engine, database), None
    with suppress(StopIteration):
        while True:
            verb, *arguments = steps.send(answer)
            answer = call(queue, verb, engine, *arguments)
            yield verb, answer


def steps_of(queue: Queue, engine: Engine, database: Database) -> Steps:
    """Calls of all verbs, each with what it takes besides the engine; their answers come back."""
    yield from _configuration()
    yield from _messages(database)
    with Session(engine) as session, session.begin(), queue.group(session) as group:
        group.enqueue_many([Enqueue(channel="a", payload=0)])
    yield "groups.status", group.id
    yield "groups.list", {"is_open": True}
    yield "groups.cancel", group.id
    yield from _schedules()
    for verb in ("stats", "channels", "admin.consumers", "admin.contention"):
        yield (verb,)
    yield "channels", {"busy": True}
    yield "admin.stop_worker", "nobody"
    yield "admin.erase", "c"
    yield "plans.list", "gold"
    yield "limits.list", "api"
    yield "configure", {"limits": None, "default_plan": None}
    yield "limits.remove", "api"
    for name in (one.channel for one in queue.channels(engine)):
        yield "configure_channel", name, {"plan": None, "reset": "all"}
    yield "plans.remove", "gold"
    yield ("plans.list",)


def _configuration() -> Steps:
    yield "configure", {"history": True, "result_retention": _DAY, "max_concurrency": 50, "fair_by": "cost"}
    yield "limits.configure", "api", {"max_concurrency": 90}
    yield "configure", {"limits": ["api"]}
    yield "plans.configure", "gold", {"weight": 2, "max_backlog": 90}
    yield "configure", {"default_plan": "gold", "dead_letter_retention": {"odd": _DAY}}
    yield "configure_channel", "b", {"plan": "gold", "max_backlog": None}
    yield "configure_channel", "c", ChannelPolicy(max_concurrency=40)
    yield "pause", "new", {"new": True}
    yield ("pause",)
    yield ("resume",)


def _messages(database: Database) -> Steps:
    first = yield "enqueue", {"channel": "a", "payload": 1, "key": "k", "unique_for": _DAY}
    yield "enqueue", {"channel": "a", "payload": 1, "key": "k", "unique_for": _DAY}
    many = yield "enqueue_many", [Enqueue(channel=name, payload=name, cost=9, kind="odd") for name in "aabbccddee"]
    later, lost, *_ = yield "enqueue_many", [Enqueue(channel="f", payload=n, delay=_DAY) for n in range(3)]
    yield "message", first.message_id
    yield "message", {"channel": "a", "key": "k"}
    yield "messages", {"channel": "b"}
    one, two, three, four, five, six, *_ = yield "dequeue", {"limit": 7, "lease": _DAY, "max_bytes": 10**6}
    yield "extend", [one, two], {"lease": 2 * _DAY}
    yield "complete", one, {"cost": 4, "result": {"x": [1]}}
    yield "result", one.message_id, {"channel": one.channel, "timeout": _DAY}
    yield "retry", two, {"delay": _DAY, "error": "no page", "cost": 2}
    yield "release", three, {"delay": _DAY}
    yield "bury", [four, five, six], {"reason": "no good", "error": "no ink"}
    yield "dead_letters.list", {"error": "ink", "limit": 2}
    yield "dead_letters.redrive", four.message_id
    yield "dead_letters.purge", five.message_id
    yield "dead_letters.purge", {"kind": "nobody"}
    yield "admin.attempts", two.message_id
    yield "admin.recent_attempts", {"channel": "b"}
    yield "admin.record_audit", "purge", {"by": "dana"}
    yield "admin.audits", {"message_id": 1}
    yield "admin.trend", {"channel": "b"}
    yield "admin.count_undelivered", "d", {"state": "ready"}
    yield "admin.retry_now", two.message_id
    yield "admin.retry_now", later.message_id
    yield "admin.move", many[-1].message_id, "new"
    yield "cancel", many[-2].message_id
    yield "purge", "d"
    lose(database, lost.message_id)
    yield "admin.retry_now", lost.message_id
    yield "dequeue", {"limit": 90}
    yield "channels", {"channel": "f"}
    yield "resume", {"channel": "f"}


def _schedules() -> Steps:
    yield "schedules.set", "nightly", {"channel": "a", "cron": "0 3 * * *"}
    yield "schedules.pause", "nightly", {"channel": "a"}
    yield "schedules.list", {"channel": "a"}
    yield "schedules.resume", "nightly", {"channel": "a"}
    yield "schedules.run", "nightly", {"channel": "a"}
    yield "schedules.remove", "nightly", {"channel": "a"}
    yield ("schedules.list",)
