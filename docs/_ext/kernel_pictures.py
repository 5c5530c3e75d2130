"""Pictures of how a dequeue finds what to take, each drawn from what a real queue did."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from drawing import INK, PALE, SERVED, WAITING, WHALE, picture, plain
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import ChannelPolicy, LeaseLost, Queue

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue import Delivery

_LEASE = timedelta(minutes=10)
_BROWN = "#b45309"
_COLOURS = (SERVED, _BROWN, WHALE, "#7c3aed")
# Before which take the third channel comes.
_LATE = 7
# The unit and the beginning of fq_channel_state.tag.
_UNIT, _FIRST = 2520, -9 * 10**18
_TAGS = text("""
    select c.name, s.ready_tag
    from fq_channel_state s
    join fq_channel c on c.id = s.channel_id
    where c.queue = :queue
      and s.ready_tag is not null
    order by s.ready_tag, s.channel_id
""")
_HEAR = text("select fq_hear(:queue)")
_END_LEASE = text("update fq_lease set expires_at = fq_now() - 1 where id = :id")
_TAKE = text("select channel from fq_dequeue(:queue, :messages, 600000000, 'c') where message_id is not null")


def _enqueue(engine: Engine, queue: Queue, channels: str) -> None:
    """Enqueue one message for each letter, which names its channel, each in a transaction of its own."""
    for channel in channels:
        queue.enqueue(engine, channel=channel, payload=None)


def _take(engine: Engine, queue: Queue, limit: int = 1) -> list[Delivery]:
    return list(queue.dequeue(engine, limit=limit, lease=_LEASE))


def _tags(engine: Engine, queue: Queue) -> dict[str, float]:
    """The start tags of the ready channels, in messages."""
    with engine.connect() as connection:
        rows = connection.execute(_TAGS, {"queue": queue.name})
        return {name: (tag - _FIRST) / _UNIT for name, tag in rows}


def _virtual_time(panel: Axes, engine: Engine) -> None:
    """Each take serves the channel with the least tag, which then moves on; c comes after seven takes."""
    queue = Queue("kernel-tags")
    queue.configure_channel(engine, "b", ChannelPolicy(weight=2))
    _enqueue(engine, queue, "aaaaaaaabbbbbbbbbbbbbb")
    steps: list[tuple[dict[str, float], str]] = []
    tags: dict[str, float] = {}
    for step in range(14):
        if step == _LATE:
            _enqueue(engine, queue, "cccc")
        [delivery] = _take(engine, queue)
        after = _tags(engine, queue)
        # Who becomes ready in this take is placed by it; where it stood before its own turn, nobody could see.
        steps.append(({**after, **tags, delivery.channel: tags.get(delivery.channel, 0.0)}, delivery.channel))
        tags = after
    zero = min(tag for tags, _ in steps[1:] for tag in tags.values())
    colours = dict(zip("abc", _COLOURS, strict=False))
    for row, (before, served) in enumerate(steps[1:], start=1):
        for channel, tag in before.items():
            size = 90 if channel == served else 36
            face = colours[channel] if channel == served else "white"
            panel.scatter(tag - zero, row, s=size, color=face, edgecolors=colours[channel], zorder=3)
            if channel == served:
                panel.annotate(
                    channel, (tag - zero, row), color="white", ha="center", va="center", fontsize=8, zorder=4
                )
    panel.set_ylabel("takes", color=INK)
    panel.set_yticks(range(1, len(steps)))
    panel.invert_yaxis()
    plain(panel)


@dataclass
class _Heard:
    """What became of a transaction of the picture: the steps at which it began, committed and was heard."""

    name: str
    began: int
    committed: int = 0
    heard: int = 0


@dataclass
class _Story:
    """Transactions that enqueue, and dequeues, one after the other."""

    engine: Engine
    queue: Queue
    step: int = 0
    transactions: dict[str, _Heard] = field(default_factory=dict)
    dequeues: list[int] = field(default_factory=list)
    _open: dict[str, Connection] = field(default_factory=dict)

    def begin(self, name: str) -> None:
        self.step += 1
        self.transactions[name] = _Heard(name, self.step)
        connection = self._open[name] = self.engine.connect()
        self.queue.enqueue(connection, channel=name, payload=None)

    def commit(self, name: str) -> None:
        self.step += 1
        self.transactions[name].committed = self.step
        self._open[name].commit()
        self._open.pop(name).close()

    def dequeue(self) -> None:
        self.step += 1
        self.dequeues.append(self.step)
        for delivery in _take(self.engine, self.queue, 10):
            self.transactions[delivery.channel].heard = self.step


def _hearing(panel: Axes, engine: Engine) -> None:
    """Three transactions, of which the first commits last, and who hears them."""
    story = _Story(engine, Queue("kernel-hearing"))
    with Session(engine) as session, session.begin():
        for name in ("A", "B", "C"):
            story.queue.configure_channel(session, name, ChannelPolicy())
    story.begin("A")
    story.begin("B")
    story.commit("B")
    story.dequeue()
    story.begin("C")
    story.commit("C")
    story.commit("A")
    story.dequeue()
    for row, one in enumerate(story.transactions.values()):
        panel.barh(row, one.committed - one.began, left=one.began, height=0.3, color=WAITING, linewidth=0)
        panel.scatter(one.committed, row, s=50, color=_BROWN, zorder=3)
        panel.plot([one.committed, one.heard], [row, row], color=PALE, zorder=1)
        panel.scatter(one.heard, row, s=90, color=SERVED, zorder=3)
    for number, step in enumerate(story.dequeues, start=1):
        panel.axvline(step, color=SERVED, lw=1, zorder=0)
        panel.annotate(f"dequeue {number}", (step, -0.62), ha="center", color=SERVED)
    panel.set_yticks(range(len(story.transactions)), [f"enqueue for {name}" for name in story.transactions], color=INK)
    panel.set_ylim(len(story.transactions) - 0.5, -0.8)
    panel.set_xticks([])
    plain(panel)


def _turn(panel: Axes, engine: Engine) -> None:
    """Two calls at once: the second one passes by the channel that the first one serves."""
    queue, each = Queue("kernel-turn"), 3
    _enqueue(engine, queue, "abcd" * each)
    with engine.begin() as connection:
        connection.execute(_HEAR, {"queue": queue.name})
    with engine.connect() as first, engine.connect() as second:
        calls = [(first, 1), (second, 4 * each)]
        taken = [connection.scalars(_TAKE, {"queue": queue.name, "messages": most}).all() for connection, most in calls]
        for connection, _ in calls:
            connection.commit()
    for row, channel in enumerate("abcd"):
        takers = [number for number, channels in enumerate(taken) for one in channels if one == channel]
        for place in range(each):
            taker = takers[place] if place < len(takers) else None
            colour, label = (PALE, "") if taker is None else (_COLOURS[taker], f"call {taker + 1}")
            panel.barh(row, 0.92, left=place, height=0.7, color=colour, linewidth=0)
            panel.annotate(label, (place + 0.46, row), ha="center", va="center", color="white")
    panel.axvline(1 - 0.04, color=_COLOURS[0], lw=1.5)
    panel.set_yticks(range(4), list("abcd"), color=INK)
    panel.invert_yaxis()
    panel.set_xticks(range(each + 1))
    plain(panel)


def _ordering(panel: Axes, engine: Engine) -> None:
    """Messages of one channel with ordering keys: what is out, done and held back after each step."""
    queue, keys = Queue("kernel-ordering"), ["x", "x", "y", "x", None, "y"]
    numbers = {
        queue.enqueue(engine, channel="a", payload=None, ordering_key=key).message_id: place
        for place, key in enumerate(keys)
    }
    out: dict[int, Delivery] = {}
    done: set[int] = set()
    steps: list[tuple[str, set[int], set[int]]] = []

    def note(step: str) -> None:
        steps.append((step, set(out), set(done)))

    def take() -> None:
        out.update((numbers[one.message_id], one) for one in _take(engine, queue, 10))
        note("dequeue")

    def complete(place: int) -> None:
        queue.complete(engine, out.pop(place))
        done.add(place)
        note(f"complete {place + 1}")

    take()
    complete(2)
    take()
    complete(0)
    take()
    for row, (_, is_out, is_done) in enumerate(steps):
        for place, key in enumerate(keys):
            colour = SERVED if place in is_out else PALE if place in is_done else WAITING
            panel.barh(row, 0.92, left=place, height=0.7, color=colour, linewidth=0)
            label = "" if place in is_done else key or "no key"
            ink = "white" if place in is_out else INK
            panel.annotate(label, (place + 0.46, row), ha="center", va="center", color=ink)
    panel.set_yticks(range(len(steps)), [step for step, _, _ in steps], color=INK)
    panel.set_xticks([place + 0.46 for place in range(len(keys))], [str(place + 1) for place in range(len(keys))])
    panel.invert_yaxis()
    plain(panel)


def _tokens(panel: Axes, engine: Engine) -> None:
    """A message whose first consumer is slower than its lease."""
    queue = Queue("kernel-tokens")
    _enqueue(engine, queue, "a")
    [slow] = _take(engine, queue)
    with engine.begin() as connection:
        connection.execute(_END_LEASE, {"id": slow.lease.id})
    [other] = _take(engine, queue)
    try:
        queue.complete(engine, slow)
    except LeaseLost:
        end = "its token is old: LeaseLost"
    queue.complete(engine, other)
    bars = (
        ("consumer 1", slow, 0.0, 6.5, end, _BROWN),
        ("consumer 2", other, 4.0, 4.0, "its token is the newest: completed", SERVED),
    )
    for row, (_, delivery, begin, length, outcome, colour) in enumerate(bars):
        panel.barh(row, length, left=begin, height=0.5, color=colour, linewidth=0)
        token = f"delivery {delivery.deliveries} of the message"
        panel.annotate(token, (begin + 0.1, row), va="center", color="white")
        panel.annotate(outcome, (begin + length + 0.1, row), va="center", color=colour)
    panel.axvline(4, color=INK, lw=1, linestyle=":")
    panel.annotate("the lease of consumer 1 ends", (4, -0.52), ha="center", color=INK)
    panel.set_yticks(range(len(bars)), [bar[0] for bar in bars], color=INK)
    panel.set_xticks([])
    panel.set_xlim(0, 12)
    panel.set_ylim(1.5, -0.7)
    plain(panel)


def draw(engine: Engine) -> None:
    """Draw all pictures."""
    virtual, turn = "virtual time, in messages of weight 1", "virtual time at which a message starts"
    pictures = (
        ("tags", 3.8, virtual, _virtual_time, "The first channel in virtual time is served, and moves on"),
        ("hearing", 2.4, "time", _hearing, "A dequeue hears what has committed, in whatever order"),
        ("turn", 2.4, turn, _turn, "Call 1 holds channel a; call 2 takes nothing beyond the bound"),
        ("tokens", 2.0, "time", _tokens, "When its lease ends, a message is delivered again under a new token"),
        ("ordering", 2.6, "messages of a channel", _ordering, "Green is out, orange waits: one of each key is out"),
    )
    for name, height, label, paint, title in pictures:
        with picture(f"kernel-{name}.svg", 1, height, label) as [panel]:
            paint(panel, engine)
            panel.set_title(title, loc="left", color=INK, pad=14)
