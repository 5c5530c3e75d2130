"""Enqueues of one producer beside peers in Python: many a call in a Session and on an engine, and one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.bench.field.arena import Arena, prepare
from tests.bench.field.environments import LIBRARY, ON_ENGINE, PEERS, CannotRun, interpreter
from tests.bench.field.meter import sessions_cpu
from tests.bench.field.script import Failed
from tests.bench.figures import Figure
from tests.bench.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.conftest import Alternate
    from tests.bench.field.environments import Contestant
    from tests.bench.figures import Report
    from tests.bench.stage import Stage

_TENANTS = 100
_PEERS = {peer.name: peer for peer in PEERS if peer.name in {"pgqueuer", "procrastinate", "chancy"}}


def _enqueued(arena: Arena, count: int, *, bulk: bool) -> tuple[float, float, float]:
    """Messages a second, and us of processor time a message: of the client, and of it and its sessions."""
    tenants = [f"tenant-{number % _TENANTS}" for number in range(count)]
    asked: dict[str, Any] = {"bulk": bulk, "pace": []}
    producer = arena.producer()
    # The first calls connect, plan, and make the channels.
    producer.ask("enqueue", tenants=tenants[: count // 4], first=0, **asked)
    with arena.connected() as wire:
        before = sessions_cpu(wire)
        told = producer.ask("enqueue", tenants=tenants, first=count, **asked)
        sessions = sum(used - before.get(session, 0.0) for session, used in sessions_cpu(wire).items())
    seconds = told["committed"][-1] - told["sent"][0]
    return count / seconds, told["cpu"] / count * 1e6, (told["cpu"] + sessions) / count * 1e6


@pytest.mark.parametrize(
    ("bulk", "who", "peers", "reach"),
    [
        (True, LIBRARY, ["pgqueuer"], 1.0),
        (True, ON_ENGINE, ["pgqueuer"], 1.5),
        (False, LIBRARY, ["pgqueuer", "procrastinate", "chancy"], 1.2),
    ],
    ids=["bulk in a Session", "bulk on an engine", "one by one on an engine"],
)
def test_enqueues(  # noqa: PLR0917 - fixtures
    stage: Stage,
    report: Report,
    alternate: Alternate,
    pytestconfig: pytest.Config,
    request: pytest.FixtureRequest,
    bulk: bool,  # noqa: FBT001 - a parameter of the test
    who: Contestant,
    peers: Sequence[str],
    reach: float,
    *,
    full: bool,
) -> None:
    """One producer adds messages as fast as the fastest peer, by wall time and by processor time."""
    count = (20_000 if bulk else 2_000) if full else (5_000 if bulk else 300)
    environments = pytestconfig.cache.mkdir("peers")
    ready = {}
    for contestant in (who, *(_PEERS[name] for name in peers)):
        try:
            python, _ = interpreter(contestant, environments)
            ready[contestant.name] = contestant, python, prepare(stage, contestant, python)
        except (CannotRun, Failed) as error:
            print(f"{contestant.name} does not take part: {error}")  # noqa: T201 - beside the figures
    if len(ready) == 1:
        pytest.skip("no peer can be had")
    told: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ready}

    def measure(side: str) -> None:
        with Arena(stage, *ready[side]) as arena:
            told[side].append(_enqueued(arena, count, bulk=bulk))

    alternate(measure, [*ready])
    server = Wire(stage.conninfo())
    for _, _, database in ready.values():
        server.run(f"drop database if exists {database} with (force)")
    server.close()
    ours = told.pop(who.name)
    fastest = max(told, key=lambda name: sorted(rate for rate, _, _ in told[name])[len(told[name]) // 2])
    what = f"enqueue, {request.node.callspec.id}, {count:,} messages"
    rates, client, both = zip(*ours, strict=True)
    their_rates, their_client, their_both = zip(*told[fastest], strict=True)
    report.add(Figure(what, "messages/s", rates, their_rates, fastest, reach))
    report.add(Figure(f"{what}, client and server", "us", both, their_both, fastest, round(1 / reach, 2), "less"))
    report.add(Figure(f"{what}, client", "us", client, their_client, fastest, None, "less"))
