"""Look-ups of messages reach their rows by index, as many as a page has, among 20,000 messages and 2,000 channels."""

from functools import partial
from typing import Any

import pytest

from tests.sql.client import HOUR, Kernel
from tests.sql.plans import assert_frugal

pytestmark = pytest.mark.usefixtures("cloned")

PAGE = 10
# A loop of PL/pgSQL fetches 10 rows and then 50 at a time.
BOUND = 60 + PAGE


@pytest.fixture
def full(kernel: Kernel) -> Kernel:
    """A backlog half of which is one channel's, each tenth with a key, each hundredth of a rare kind."""
    kernel.enqueue(*["held"] * 5)
    kernel.rows("insert into fq_channel (queue, name) select 'q', 'c' || i from generate_series(1, 2000) i")
    kernel.rows(
        """
        insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts, key)
        select c.id + case when i % 2 = 0 then 0 else i % 2000 end, case when i % 100 = 0 then 'rare' else 'work' end,
          '{}', i, i, 20, case when i % 10 = 0 then 'k' || i end
        from fq_channel c
        cross join generate_series(1, 20000) i
        where c.name = 'c1'
        """
    )
    assert len(kernel.dequeue(5, lease=HOUR).hands) == 5
    kernel.commit()
    return kernel


def _find(kernel: Kernel, **asked: object) -> list[dict[str, Any]]:
    names = ("channel", "state", "kind", "step", "at", "message_id")
    types = ("text", "text", "text", "integer", "bigint", "bigint")
    marks = ", ".join(f"%({name})s::{kind}" for name, kind in zip(names, types, strict=True))
    call = f"select * from fq_find_messages('q', {marks}, {PAGE}, 5000)"
    return kernel.rows(call, **{name: asked.get(name) for name in names})


def test_a_page_reads_a_page(full: Kernel) -> None:
    """Whatever is asked for by index, the page costs what it has; what no index has, and a place, cost their bounds."""
    pages: list[dict[str, object]] = [
        {"channel": "c1"},
        {"channel": "c1", "state": "ready"},
        {"channel": "c1", "state": "scheduled"},
        {"channel": "c1", "state": "leased"},
        {"channel": "c1", "step": 2, "at": 18_000, "message_id": 1},
        {"channel": "c1", "state": "ready", "step": 2, "at": 18_000, "message_id": 1},
        {"channel": "held"},
        {"channel": "c1999", "kind": "work"},
        {},
        {"state": "ready"},
        {"state": "leased"},
        {"step": 3, "at": 0, "message_id": 18_000},
    ]
    for asked in pages:
        assert_frugal(full, BOUND, partial(_find, full, **asked))
    # A kind and a state of the whole queue read so many messages, and no more.
    bounded: list[dict[str, object]] = [{"kind": "none"}, {"state": "scheduled"}, {"channel": "c1", "kind": "none"}]
    for asked in bounded:
        [row] = assert_frugal(full, 5000 + BOUND, partial(_find, full, **asked))
        assert row["message_id"] is None
    # A message at the end of a long channel is counted up to the bound.
    last = full.value("select max(id) from fq_message where lease_id is null")
    ahead = "select messages_ahead from fq_message_details('q', array[%(id)s], 0, 100)"
    assert assert_frugal(full, 100 + BOUND, lambda: full.value(ahead, id=last)) is None
    before = "select count(*) from fq_message where channel_id = (select channel_id from fq_message where id = %(id)s)"
    assert full.value(ahead.replace("100)", "1000000)"), id=last) == full.value(f"{before} and id < %(id)s", id=last)


def test_the_reason_of_a_wait_reads_a_bounded_part(full: Kernel) -> None:
    """With 2,000 ready channels, 1,000 messages out and as many signals, it reads so many of each as it may."""
    full.rows(
        "insert into fq_channel_state (channel_id, queue, head_dequeue_at, head_message_id, tag, ready_tag)"
        " select id, 'q', 0, 0, id - 9000000000000000000, id - 9000000000000000000 from fq_channel where name like 'c%'"
    )
    full.rows("update fq_message m set lease_id = e.id from fq_lease e where m.id % 19 = 0 and m.lease_id is null")
    full.rows(
        "insert into fq_signal (queue, channel_id, dequeue_at, message_id, added)"
        " select 'q', m.channel_id, 0, m.id, 1 from fq_message m where m.id % 19 = 1"
    )
    call = "select * from fq_contention('q', 4, '{c1}', 50, 50)"
    found = assert_frugal(full, 3 * 50 + BOUND, lambda: full.rows(call))
    # It may be one of those with the most messages out.
    assert (found[0]["channel"], found[0]["messages_out"], len(found) in {4, 5}) == ("c1", 50, True)
    assert found[0]["rival_weight"] <= 3 * 50 + 1


def test_the_reasons_of_many_channels_do_not_multiply(full: Kernel) -> None:
    """Of 1,000 channels that are asked for and 1,000 messages out, none is compared with all of the others."""
    full.rows("update fq_message m set lease_id = e.id from fq_lease e where m.id % 19 = 0 and m.lease_id is null")
    full.commit()
    full.rows("analyze")
    named = [f"c{number}" for number in range(1, 1001)]
    call = partial(full.rows, "select * from fq_contention('q', 4, %(named)s, 3000, 60000)", named=named)
    found = assert_frugal(full, 3 * 1000 + BOUND, call)
    assert 1000 <= len(found) <= 1000 + 4
    assert found[0]["messages_out"] > 1000


def test_leases_without_messages_are_bounded(kernel: Kernel) -> None:
    """Of thousands of leases that hold nothing, so many are read as of messages."""
    kernel.enqueue("a", "b")
    assert len(kernel.dequeue(1, lease=1).hands) == 1
    kernel.rows(
        "insert into fq_lease (id, queue, consumer, expires_at)"
        " select n + 1000, 'q', 'w' || n, fq_now() + 3600000000 + n from generate_series(1, 5000) n"
    )
    call = "select * from fq_contention('q', 4, '{a}', 50, 50)"
    found = assert_frugal(kernel, 3 * 50 + BOUND, lambda: kernel.rows(call))
    assert found[0]["messages_out"] == 1


def test_requests_are_found_by_index(kernel: Kernel) -> None:
    """A worker's poll and an operator's request read a row, among thousands of requests and leases of other queues."""
    kernel.rows(
        "insert into fq_stop_request (queue, consumer, requested_by, requested_at)"
        " select 'documents', 'w' || n, 'dana', fq_now() from generate_series(1, 5000) n"
    )
    kernel.rows(
        "insert into fq_lease (id, queue, consumer, expires_at)"
        " select n, 'mails', 'w' || n, fq_now() + 3600000000 from generate_series(1, 5000) n"
    )

    def work() -> None:
        kernel.rows(
            "select * from fq_stop_requests(array['documents', 'mails']::text[], 'w17'::text, array[17], '1', 8)"
        )
        kernel.rows("select fq_request_stop('documents'::text, 'w17'::text, null::text)")

    assert_frugal(kernel, 2, work)
