"""fq_cancel: a message is withdrawn before anybody has it, or not at all."""

import pytest
from psycopg import errors

from tests.fixtures.waits import Waits
from tests.sql.client import Kernel, OpenKernel, on


def test_a_withdrawn_message_is_never_delivered(kernel: Kernel) -> None:
    """Withdrawn messages are gone, the others of the channel come as before, and the key is free."""
    added = kernel.enqueue("a", "a", "a", keys=["k", None, None])
    assert kernel.cancel(added[0].message_id, added[2].message_id) == {}
    assert kernel.dequeue(10).ids == [added[1].message_id]
    assert kernel.enqueue("a", keys=["k"])[0].created


def test_what_cannot_be_withdrawn_is_named(kernel: Kernel) -> None:
    """Messages in a consumer's hands, unknown ones and those of other queues are named with the reason."""
    leased = kernel.enqueue("a")[0].message_id
    kernel.dequeue()
    foreign = Kernel(kernel.connection, queue="other").enqueue("a")[0].message_id
    assert kernel.cancel(leased, foreign, 99) == {leased: "leased", foreign: "missing", 99: "missing"}
    assert kernel.cancel() == {}
    assert kernel.rows("select * from fq_cancel(null, null)") == []


def test_a_cancel_that_loses_the_race_says_so(kernel: Kernel, open_kernel: OpenKernel, waits: Waits) -> None:
    """A cancel of a message that is just being handed out waits for that call and then finds it leased."""
    (added,) = kernel.enqueue("a")
    consumer = open_kernel()
    assert consumer.dequeue().ids == [added.message_id]
    rival = waits.start(on(lambda second: second.cancel(added.message_id))).blocked()
    consumer.commit()
    assert rival.result() == {added.message_id: "leased"}


@pytest.mark.parametrize("isolation", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_a_stale_snapshot_cannot_cancel(kernel: Kernel, open_kernel: OpenKernel, isolation: str) -> None:
    """A stricter caller whose message was delivered since its snapshot gets 40001, as documented."""
    (added,) = kernel.enqueue("a")
    business = open_kernel(isolation=isolation)
    business.value("select 1")
    kernel.dequeue()
    with pytest.raises(errors.SerializationFailure):
        business.cancel(added.message_id)
