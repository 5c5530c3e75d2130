"""View of an observer: everything that is committed, read in one snapshot by one statement."""

from datetime import timedelta
from typing import Any

from sqlalchemy_fairqueue import ChannelPolicy, Rate
from tests.model.books import Message
from tests.model.invariants import HELD
from tests.model.signals import Signal

_MESSAGES = """
select m.id, c.name as channel, convert_from(m.content, 'UTF8')::integer as number, m.key, m.dequeue_at,
  m.enqueued_at, m.max_attempts, m.priority, m.attempts, m.deliveries, m.lease_id, m.slots, m.cancelled,
  m.delivered_at is not null as recorded, m.group_id, m.ordering_key
from fq_message m
join fq_channel c on c.id = m.channel_id
where c.queue = 'model'
"""
_DEAD = "select message_id, key from fq_dead_letter"
_HISTORY = "select message_id, attempt, outcome from fq_history"
_RESULTS = "select message_id as id, outcome from fq_result"
_CHANNELS = """
select c.name, s.max_concurrency, s.max_cost_out, s.rate_interval, s.rate_burst, s.rate_of, s.weight,
  s.max_backlog, s.priority_aging, s.on_full, s.paused_at is not null as paused,
  s.dropped + (select coalesce(sum(g.dropped), 0) from fq_signal g where g.channel_id = s.channel_id) as dropped
from fq_channel_state s
join fq_channel c on c.id = s.channel_id
where c.queue = 'model'
"""
_SIGNALS = """
select g.id, c.name as channel, g.added, g.bounded, g.queue_freed, g.id <= s.heard_id as passed
from fq_signal g
join fq_channel c on c.id = g.channel_id
join fq_channel_state s on s.channel_id = g.channel_id
where c.queue = 'model'
"""
_GROUPS = """
select g.group_id as id, g.finished_at is not null as is_finished, g.added + coalesce(sum(n.added), 0) as total,
  g.done + coalesce(sum(n.done), 0) as done, g.failed + coalesce(sum(n.failed), 0) as failed,
  g.cancelled + coalesce(sum(n.cancelled), 0) as cancelled
from fq_group g
left join fq_group_note n on n.group_id = g.group_id
group by g.group_id
"""

HIDDEN = """
select c.name, sum(g.added) as messages
from fq_signal g
join fq_channel c on c.id = g.channel_id
join fq_channel_state s on s.channel_id = g.channel_id
where s.max_backlog is not null
  and (not g.bounded or g.id <= s.heard_id)
group by c.name
having sum(g.added) <> 0
"""


def _sight() -> str:
    tables = {
        "messages": _MESSAGES,
        "dead": _DEAD,
        "history": _HISTORY,
        "channels": _CHANNELS,
        "signals": _SIGNALS,
        "groups": _GROUPS,
        "results": _RESULTS,
        "broken": f"select b.line from ({HELD}) b(line)",
    }
    parts = (
        f"'{name}', (select coalesce(json_agg(row_to_json(r)), '[]'::json) from ({rows}) r)"
        for name, rows in tables.items()
    )
    return f"select json_build_object({', '.join(parts)})"


SIGHT = _sight()
"""The statement: one row of one column, the rows of each table as JSON."""


class Sight:
    """What it has found, as the books have it, and a line for each invariant that does not hold."""

    def __init__(self, tables: dict[str, list[dict[str, Any]]]) -> None:
        self.messages = {row["id"]: Message(**row) for row in tables["messages"]}
        self.letters = {row["message_id"]: row["key"] for row in tables["dead"]}
        self.attempts = sorted((row["message_id"], row["attempt"], row["outcome"]) for row in tables["history"])
        self.results = {row["id"]: row["outcome"] for row in tables["results"]}
        self.groups = {row.pop("id"): row for row in tables["groups"]}
        self.channels = dict(map(_served, tables["channels"]))
        self.unheard = [Signal(**row) for row in tables["signals"]]
        self.broken = [row["line"] for row in tables["broken"]]


def _served(row: dict[str, Any]) -> tuple[str, tuple[ChannelPolicy, bool, int]]:
    """A channel: how it is served, whether it is paused, and how many messages it has dropped."""
    name, paused, dropped = row.pop("name"), row.pop("paused"), row.pop("dropped")
    interval, burst, of = (row.pop(f"rate_{one}") for one in ("interval", "burst", "of"))
    row["rate"] = Rate.every(timedelta(microseconds=interval), burst, of)
    if row["priority_aging"] is not None:
        row["priority_aging"] = timedelta(microseconds=row["priority_aging"])
    return name, (ChannelPolicy(**row), paused, dropped)
