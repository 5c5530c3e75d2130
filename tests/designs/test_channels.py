"""The channel design with the head pointer updated at enqueue: fair, limited, and producers wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.designs.installed import tenants_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.designs.installed import Design


def test_the_head_is_a_channel_s_first_message(install_design: Callable[..., Design]) -> None:
    """The pointer names the oldest message that waits, and nothing when the last was taken."""
    consumer = install_design("channels").consumer()
    consumer.enqueue("a", "a")
    heads = "select c.head_message_id from head.channel c"
    first, second = (row[0] for row in consumer.rows("select id from head.message order by id"))
    assert consumer.rows(heads) == [(first,)]
    assert [task.id for task in consumer.dequeue(1)] == [first]
    assert consumer.rows(heads) == [(second,)]
    consumer.dequeue(1)
    assert consumer.rows(heads) == [(None,)]


def test_no_more_than_the_limit_at_a_time(install_design: Callable[..., Design]) -> None:
    """A channel's limit holds across batches, and a completion gives the slot back."""
    consumer = install_design("channels").consumer()
    consumer.enqueue(*["a"] * 5, "b")
    consumer.rows("update head.channel set max_concurrency = 2")
    taken = consumer.dequeue(9)
    assert tenants_of(taken) == {"a": 2, "b": 1}
    assert consumer.dequeue(9) == []
    consumer.complete([task for task in taken if task.tenant == "a"][:1])
    assert tenants_of(consumer.dequeue(9)) == {"a": 1}


def test_an_enqueue_that_is_not_committed_hides_its_channel(install_design: Callable[..., Design]) -> None:
    """A producer's open transaction keeps its tenant's older messages from consumers, and other producers waiting."""
    design = install_design("channels")
    consumer, producer = design.consumer(), design.consumer(autocommit=False)
    consumer.enqueue("a", "b")
    producer.enqueue("a")
    assert tenants_of(consumer.dequeue(9)) == {"b": 1}
    consumer.rows("set lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        consumer.enqueue("a")
    producer.connection.commit()
    assert tenants_of(consumer.dequeue(9)) == {"a": 2}
