"""Backlogs that come from nowhere: for our tables and the designs' in SQL, as so many enqueues would have left them.

Peers are filled by their own bulk calls, by `Arena.fill`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.bench.sides import hear

if TYPE_CHECKING:
    from tests.bench.wire import Wire

_CHUNK: Final = 500_000
_NUMBERED = (
    "(select i, 'tenant-' || i % {tenants} as tenant, convert_to(i::text, 'UTF8') as content"
    " from generate_series({first}, {last}) i) n"
)


@dataclass(frozen=True, slots=True)
class Backlog:
    """How a backlog is put into tables.

    Attributes:
        before: makes the tenants known.
        insert: adds the messages of {numbered}, all due at {due}, microseconds since 1970.
        after: brings everything else in line with the messages.
        signals: whether the library's signals must be heard then.
        later: whether messages can be due later.
    """

    insert: str
    before: str = "select"
    after: str = "select"
    signals: bool = False
    later: bool = False

    def fill(self, wire: Wire, *, first: int, count: int, tenants: int, later: bool) -> None:
        """Add *count* messages, numbered from *first*, to as many tenants, and tidy up."""
        due = "(extract(epoch from clock_timestamp()) * 1000000)::bigint" + (" + 86400000000" if later else "")
        values = {"tenants": tenants, "due": wire.value(f"select {due}")}
        wire.run(self.before.format(**values))
        for start in range(first, first + count, _CHUNK):
            numbered = _NUMBERED.format(first=start, last=min(start + _CHUNK, first + count) - 1, **values)
            wire.run(self.insert.format(**values | {"numbered": numbered}))
        wire.run(self.after.format(**values))
        if self.signals:
            wire.run("analyze")
            hear(wire)
        wire.run("vacuum (analyze)")


def _plain(schema: str) -> str:
    return f"insert into {schema}.task (tenant, content) select n.tenant, n.content from {{numbered}} order by n.i"


FILLINGS: Final = {
    "fairqueue": Backlog(
        before=(
            "select fairqueue.fq_make_channels('bench', array_agg('tenant-' || i))"
            " from generate_series(0, {tenants} - 1) i"
        ),
        insert=(
            "with added as ("
            "insert into fairqueue.fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
            " select c.id, 'default', n.content, {due}, fairqueue.fq_now(), 20 from {numbered}"
            " join fairqueue.fq_channel c on c.queue = 'bench' and c.name = n.tenant order by n.i"
            " returning id, channel_id, dequeue_at)"
            " insert into fairqueue.fq_signal (queue, channel_id, dequeue_at, message_id, added)"
            " select 'bench', a.channel_id, a.dequeue_at, a.id, 1 from added a"
        ),
        signals=True,
        later=True,
    ),
    "fifo": Backlog(_plain("fifo")),
    "leased": Backlog(_plain("leased")),
    "priority": Backlog(
        "insert into priority.task (tenant, content, dequeue_at)"
        " select n.tenant, n.content, to_timestamp({due} / 1e6) from {numbered} order by n.i",
        later=True,
    ),
    "blocks": Backlog(
        before=(
            "insert into blocks.task_group (name, block) select 'tenant-' || i, -1"
            " from generate_series(0, {tenants} - 1) i on conflict (name) do nothing;"
            " update blocks.task_group g set block = greatest(g.block, p.block) from blocks.pointer p"
        ),
        insert=(
            "with added as (insert into blocks.task (id, tenant, content)"
            " select (g.block + row_number() over (partition by g.id order by n.i)) * 1048576 + g.id,"
            " n.tenant, n.content"
            " from {numbered} join blocks.task_group g on g.name = n.tenant returning id, tenant)"
            " update blocks.task_group g set block = a.block"
            " from (select tenant, max(id) / 1048576 as block from added group by tenant) a where g.name = a.tenant"
        ),
    ),
    "channels": Backlog(
        before=(
            "insert into head.channel (queue, name) select 'bench', 'tenant-' || i"
            " from generate_series(0, {tenants} - 1) i on conflict (queue, name) do nothing"
        ),
        insert=(
            "insert into head.message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts)"
            " select c.id, 'default', n.content, {due} / 1000, {due}, 20 from {numbered}"
            " join head.channel c on c.queue = 'bench' and c.name = n.tenant order by n.i"
        ),
        after=(
            "update head.channel c"
            " set head_message_id = m.id, head_dequeue_at = m.dequeue_at, next_dequeue_at = m.dequeue_at"
            " from (select distinct on (channel_id) channel_id, id, dequeue_at from head.message where lease_id is null"
            " order by channel_id, dequeue_at, id) m where m.channel_id = c.id"
        ),
        later=True,
    ),
}
"""By the name of the contestant whose tables they fill. The window function reads the whole backlog at each dequeue:
it is given none that is worth filling."""
