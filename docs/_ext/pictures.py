"""Pictures for the site: ``python docs/_ext/pictures.py`` draws them anew into docs/_static. Here: fairness.

The fair order is that of a real queue in a private PostgreSQL: one consumer takes one message at a time. What is drawn
as time is the number of messages that were taken, since all take equally long here. So the pictures come out the same
on every machine.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import TYPE_CHECKING

import kernel_pictures
from drawing import INK, SERVED, STATIC, WAITING, WHALE, picture, plain
from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, Queue, install_fairqueue
from sqlalchemy_fairqueue.embedded import embedded_server

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

_MINNOWS = ("Alice", "Carol", "Dave", "Erin", "Frank", "Grace", "Heidi", "Ivan", "Judy", "Kim")
_TAKEN = "messages that were taken so far"
_SHAPES = (4, 3, 1, 3, 1, 5, 2, 4, 4, 1)


@dataclass(frozen=True)
class Visit:
    """Messages of a tenant that come together, after so many others were taken."""

    tenant: str
    messages: int
    after: int = 0


@dataclass(frozen=True)
class Taken:
    """A message: when it came, and when it was taken."""

    tenant: str
    came: int
    taken: int


def fair(engine: Engine, name: str, visits: Sequence[Visit], weights: Mapping[str, int] | None = None) -> list[Taken]:
    """The order in which a real queue delivers the visits' messages."""
    queue = Queue(name)
    for tenant, weight in (weights or {}).items():
        queue.configure_channel(engine, tenant, ChannelPolicy(weight=weight))
    taken: list[Taken] = []
    waiting = sorted(visits, key=lambda visit: visit.after)
    while True:
        while waiting and waiting[0].after <= len(taken):
            visit = waiting.pop(0)
            with Session(engine) as session, session.begin():
                for _ in range(visit.messages):
                    queue.enqueue(session, channel=visit.tenant, payload=visit.after)
        batch = queue.dequeue(engine, limit=1, lease=timedelta(minutes=10))
        if not batch:
            return taken
        [delivery] = batch
        taken.append(Taken(delivery.channel, delivery.payload, len(taken)))
        queue.complete(engine, delivery)


def fifo(visits: Sequence[Visit]) -> list[Taken]:
    """The order of a table that is served first come, first served."""
    every = [visit for visit in sorted(visits, key=lambda visit: visit.after) for _ in range(visit.messages)]
    return [Taken(visit.tenant, visit.after, at) for at, visit in enumerate(every)]


def _waits(panel: Axes, title: str, taken: Sequence[Taken]) -> None:
    """One row a tenant: when its messages came and were taken."""
    tenants = ["Bob", *_MINNOWS]
    waits = [one.taken - one.came for one in taken if one.tenant != "Bob"]
    panel.set_title(f"{title}: the others wait for {median(waits):.0f} messages (median)", loc="left", color=INK)
    for row, tenant in enumerate(tenants):
        own = [one for one in taken if one.tenant == tenant]
        if tenant != "Bob":
            came, last = min(one.came for one in own), max(one.taken for one in own)
            panel.barh(row, last - came, left=came, height=0.55, color=WAITING, linewidth=0)
        colour, width = (WHALE, 0.5) if tenant == "Bob" else (SERVED, 1.6)
        panel.vlines([one.taken for one in own], row - 0.34, row + 0.34, color=colour, lw=width)
    panel.set_yticks(range(len(tenants)), tenants, color=INK)
    panel.invert_yaxis()
    plain(panel)


def _shares(panel: Axes, title: str, taken: Sequence[Taken], until: int) -> None:
    """How many messages of each tenant were taken so far."""
    panel.set_title(title, loc="left", color=INK)
    counts: Counter[str] = Counter()
    lines: dict[str, list[int]] = {tenant: [] for tenant in sorted({one.tenant for one in taken})}
    for one in taken[:until]:
        counts[one.tenant] += 1
        for tenant, line in lines.items():
            line.append(counts[tenant])
    for (tenant, line), colour in zip(lines.items(), (SERVED, "#b45309", WHALE), strict=False):
        panel.plot(range(1, len(line) + 1), line, color=colour, lw=1.6)
        panel.annotate(tenant, (len(line), line[-1]), (4, 0), textcoords="offset points", va="center", color=colour)
    panel.set_ylabel("messages taken of each", color=INK)
    plain(panel)


def draw(engine: Engine) -> None:
    """Draw all pictures."""
    STATIC.mkdir(exist_ok=True)
    small = [
        Visit(name, count, 8 + 11 * place) for place, (name, count) in enumerate(zip(_MINNOWS, _SHAPES, strict=True))
    ]
    visits = [Visit("Bob", 250), *small]
    with picture("fairness-waits.svg", 2, 5.4, _TAKEN) as panels:
        _waits(panels[0], "Fair queue", fair(engine, "waits", visits))
        _waits(panels[1], "First come, first served", fifo(visits))
    pair = [Visit("a", 200), Visit("b", 200)]
    with picture("fairness-weights.svg", 2, 4.6, _TAKEN) as panels:
        _shares(panels[0], "Equal weights", fair(engine, "equal", pair), 100)
        _shares(panels[1], "Weight 3 for a", fair(engine, "weighted", pair, {"a": 3}), 100)
    late = [Visit("a", 200), Visit("b", 60, 60)]
    with picture("fairness-idle.svg", 1, 2.8, _TAKEN) as panels:
        _shares(panels[0], "b was idle for 60 messages: it saves nothing up", fair(engine, "idle", late), 140)


def main() -> None:
    """Start a private server, and draw."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("MPLCONFIGDIR", folder)
        with embedded_server(durable=False) as server:
            engine = create_engine(server.url())
            install_fairqueue(engine)
            draw(engine)
            kernel_pictures.draw(engine)
            engine.dispose()


if __name__ == "__main__":
    main()
