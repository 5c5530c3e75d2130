"""Members that are added in bulk: what they have in common is sent once, and each is what it would be alone."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from sqlalchemy_fairqueue import Enqueue, Queue
from sqlalchemy_fairqueue.errors import OutsideGroupWarning
from tests.fixtures.database import Database
from tests.groups.conftest import counts

pytestmark = pytest.mark.installed


def test_what_members_have_in_common_is_sent_once(engine: Engine, database: Database, queue: Queue) -> None:
    """One header and one group for all of a call, where no member has other headers."""
    sent: list[dict[str, Any]] = []

    def hear(*args: Any) -> None:
        statement, parameters = args[2:4]
        if "fq_enqueue" in statement:
            sent.append(parameters)

    event.listen(engine, "before_cursor_execute", hear)
    with Session(engine) as session, session.begin(), queue.group(session) as group:
        group.enqueue_many(Enqueue(channel=f"c{number % 3}", payload=number) for number in range(30))
    event.remove(engine, "before_cursor_execute", hear)
    [call] = sent
    # In the header and as the group.
    assert str(call).count(str(group.id)) == 2
    assert list(map(tuple, database.rows("select distinct group_id, headers from fq_message"))) == [
        (group.id, {"group": str(group.id)}),
    ]
    assert counts(queue.groups.status(engine, group.id))[:2] == (30, 0)


def test_groups_and_others_in_one_transaction(engine: Engine, database: Database, queue: Queue) -> None:
    """Each member has its own group and headers, others have none, and what is no member is not counted."""
    with Session(engine) as session, session.begin():
        with queue.group(session) as first:
            first.enqueue_many([Enqueue(channel="a", payload=n) for n in (1, 2)])
            with pytest.warns(OutsideGroupWarning):
                queue.enqueue(session, channel="a", payload="none")
            with queue.group(session) as second:
                twins = [Enqueue(channel="b", payload=n, key="k", headers={"own": n}) for n in (3, 4)]
                receipts = second.enqueue_many([*twins, Enqueue(channel="a", payload=5)])
            first.enqueue_many([Enqueue(channel="b", payload=6)])
        queue.enqueue(session, channel="b", payload="other", headers={"own": 7})
    assert [one.outcome for one in receipts] == ["created", "duplicate", "created"]
    assert receipts[0].message_id == receipts[1].message_id
    group_ids = {1: first.id, 2: first.id, "none": None, 3: second.id, 5: second.id, 6: first.id, "other": None}
    own = {3: {"own": 3}, "other": {"own": 7}}
    found = {
        queue.codec.decode(bytes(content)): (group_id, headers)
        for content, group_id, headers in map(tuple, database.rows("select content, group_id, headers from fq_message"))
    }
    expected = {
        payload: (group_id, {**own.get(payload, {}), **({"group": str(group_id)} if group_id else {})} or None)
        for payload, group_id in group_ids.items()
    }
    assert found == expected
    assert counts(queue.groups.status(engine, first.id))[0] == 3
    assert counts(queue.groups.status(engine, second.id))[0] == 2


def test_members_with_keys_for_a_period(engine: Engine, database: Database, queue: Queue) -> None:
    """Members whose keys stay taken for a period have the group and its header too, beside others without a period."""
    day = timedelta(days=1)
    with Session(engine) as session, session.begin(), queue.group(session) as group:
        group.enqueue_many(
            [Enqueue(channel="a", payload=n, key=f"k{n}", unique_for=day if n else None) for n in range(3)]
        )
    assert (
        list(map(tuple, database.rows("select group_id, headers from fq_message")))
        == [(group.id, {"group": str(group.id)})] * 3
    )
    assert counts(queue.groups.status(engine, group.id))[0] == 3
