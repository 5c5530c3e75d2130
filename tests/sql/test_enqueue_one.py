"""fq_enqueue of one message: a shorter way through the function, which must not differ from the long one."""

from itertools import product
from typing import Any

import psycopg
import pytest

from tests.sql.client import HOUR, Kernel

FAR = 2**63 - 1
VALUES: dict[str, list[Any]] = {
    "channels": ["busy"],
    "kinds": ["work"],
    "contents": [b"\x00\xff"],
    "delays": [None, 0, HOUR, -1, FAR],
    "ats": [None, FAR],
    "priorities": [None, 0, 5],
    "keys": [None, "", "stands", "free"],
    "max_attempts": [None, 0, 3],
}
"""Every combination is tried."""
ODD: dict[str, list[Any]] = {
    "channels": ["new", "", "x" * 513, None],
    "kinds": ["", "ä" * 257, "k" * 512, None],
    "contents": [b"", None],
    "keys": ["ä" * 257, "y" * 512],
}
"""Tried one at a time."""

SHORT = "%(headers)s::jsonb[]"
# An array whose subscripts do not begin at 1: never made by a client, but it is one message all the same.
LONG = "array_fill((%(headers)s::jsonb[])[1], array[1], array[0])"


def enqueue(kernel: Kernel, headers: str, message: dict[str, Any]) -> list[object]:
    """What became of one message: the answer or the error, and everything that a commit would leave."""
    sql = f"""
        select * from fq_enqueue(%(queue)s, %(channels)s::text[], %(kinds)s::text[], %(contents)s::bytea[], {headers},
          %(delays)s::bigint[], %(ats)s::bigint[], %(priorities)s::integer[], %(keys)s::text[],
          %(max_attempts)s::integer[], jsonb_build_object('max_concurrency', 7))
    """
    parameters = {name: [value] for name, value in message.items()}
    try:
        answers = kernel.rows(sql, headers=['{"trace": 1}'], **parameters)
    except psycopg.Error as refusal:
        kernel.rollback()
        return [refusal.sqlstate, refusal.diag.message_primary, refusal.diag.message_detail, refusal.diag.message_hint]
    left = kernel.rows("""
        select c.name, m.kind, m.content, m.headers, m.key, m.attempts, m.max_attempts, m.deliveries, m.lease_id,
          m.slots, m.error, m.id in (select id from kept) as stood, s.freed,
          case when m.dequeue_at - m.enqueued_at between 0 and 3600000000 then m.dequeue_at - m.enqueued_at
            else m.dequeue_at end as due,
          s.message_id = m.id and s.dequeue_at = m.dequeue_at and s.channel_id = m.channel_id as told,
          (select count(*) from fq_channel) as channels, (select max(max_concurrency) from fq_channel_state) as most
        from fq_message m
        join fq_channel c on c.id = m.channel_id
        left join fq_signal s on s.message_id = m.id and s.queue = c.queue
        where m.enqueued_at > 0
        order by m.id
    """)
    named = kernel.rows("select key from fq_message where id = %(id)s", id=answers[0]["message_id"])
    kernel.rollback()
    return [answers[0]["ordinal"], answers[0]["created"], len(answers), named, left]


@pytest.fixture
def stood(kernel: Kernel) -> Kernel:
    """A queue with a channel, and a key that stands in it; what is done further is rolled back."""
    kernel.enqueue("busy", keys=["stands"])
    kernel.rows("create table kept as select id from fq_message")
    kernel.connection.autocommit = False
    return kernel


def test_one_message_alone_is_as_one_of_many(stood: Kernel) -> None:
    """Whatever the values, the short way leaves the same rows, gives the same answer and raises the same errors."""
    whole = [dict(zip(VALUES, values, strict=True)) for values in product(*VALUES.values())]
    plain = whole[0]
    whole += [{**plain, name: value} for name, values in ODD.items() for value in values]
    created = 0
    for message in whole:
        short, long = (enqueue(stood, headers, message) for headers in (SHORT, LONG))
        assert short == long, message
        created += short[1] is True
    assert created > 20


@pytest.mark.parametrize("first", [-3, 0, 1, 2])
def test_a_message_to_replace_is_replaced(kernel: Kernel, first: int) -> None:
    """Whatever subscripts the array of policies has, each message follows its own policy."""
    [stands] = kernel.enqueue("a", keys=["k"])
    rows = kernel.rows(
        f"""
        select * from fq_enqueue('q', array['a', 'a', 'b'], array['work', 'work', 'work'],
          array['new', 'newer', 'other']::bytea[], array[null]::jsonb[], array_fill(null::bigint, array[3]),
          array_fill(null::bigint, array[3]), array_fill(null::integer, array[3]), array['k', 'k', 'l'],
          array_fill(null::integer, array[3]), null, '[{first}:{first + 2}]={{replace,skip,replace}}'::text[])
        order by ordinal
        """
    )
    assert [row["outcome"] for row in rows] == ["replaced", "duplicate", "created"]
    content = kernel.value("select content from fq_message where id = %(id)s", id=stands.message_id)
    assert content == b"new"
