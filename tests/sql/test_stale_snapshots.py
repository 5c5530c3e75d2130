"""A stricter transaction whose snapshot is older than what others changed gets 40001, as documented."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest
from psycopg import errors

from tests.sql.answers import Hand
from tests.sql.client import Kernel, OpenKernel, refused
from tests.sql.kernel.verbs import limit
from tests.sql.life.verbs import keep_history, lock_messages, purge_channel, purge_dead, redrive
from tests.sql.load.loads import merge


class Changed(NamedTuple):
    """What others have done since: given back a delivery, delivered a message with a key, redriven a letter, and taken
    the key of another one.
    """

    back: Hand
    delivered: int
    redriven: int
    keyed: int


VERBS: dict[str, Callable[[Kernel, Changed], object]] = {
    "complete": lambda business, changed: business.complete(changed.back),
    "release": lambda business, changed: business.release(changed.back),
    "retry": lambda business, changed: business.retry(changed.back),
    "bury": lambda business, changed: business.bury(changed.back),
    "cancel what was given back": lambda business, changed: business.cancel(changed.back.id),
    "cancel what was delivered": lambda business, changed: business.cancel(changed.delivered),
    "hold": lambda business, changed: lock_messages(business, changed.back.id),
    "replace": lambda business, _: business.enqueue("a", keys=["k"], on="replace"),
    "first use of a channel": lambda business, _: business.enqueue("new"),
    "purge": lambda business, _: purge_channel(business, "a"),
    "redrive": lambda business, changed: redrive(business, changed.redriven),
    "redrive under a key": lambda business, changed: redrive(business, changed.keyed),
    "purge a letter": lambda business, changed: purge_dead(business, changed.redriven),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("isolation", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_it_fails_to_serialize(kernel: Kernel, open_kernel: OpenKernel, isolation: str, verb: str) -> None:
    """Each verb that would need to know of the change fails; the change stays."""
    kernel.enqueue("dead", "dead", keys=[None, "d"])
    redriven, keyed = kernel.dequeue(2).hands
    kernel.bury(redriven, keyed)
    kernel.enqueue("c")
    (back,) = kernel.dequeue().hands
    (delivered,) = kernel.enqueue("a", keys=["k"])
    business = open_kernel(isolation=isolation)
    business.value("select 1")
    kernel.release(back)
    redrive(kernel, redriven.id)
    kernel.enqueue("dead", "new", keys=["d", None])
    hands = kernel.dequeue(10).hands
    with pytest.raises(errors.SerializationFailure):
        VERBS[verb](business, Changed(back, delivered.message_id, redriven.id, keyed.id))
    business.rollback()
    assert len(hands) == 5
    assert kernel.complete(*hands) == {}


@pytest.mark.parametrize("isolation", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_some_verbs_run_read_committed_only(open_kernel: OpenKernel, isolation: str) -> None:
    """What must see what others did while it waited for its locks refuses a snapshot that is older than they are."""
    for verb in (Kernel.dequeue, keep_history, partial(limit, most=1), partial(merge, stage="nowhere", messages=0)):
        with refused("QF003"):
            verb(open_kernel(isolation=isolation))
