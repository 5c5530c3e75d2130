"""The database's clock steps by a minute while workers are at work."""

from datetime import timedelta

from sqlalchemy_fairqueue import ChannelPolicy, Rate
from tests.chaos.books import Books
from tests.chaos.children import StartChild
from tests.chaos.conftest import Rescue
from tests.fixtures.clock import Clock
from tests.fixtures.database import Database
from tests.worker.helpers import until

_MINUTE = timedelta(minutes=1)
_SOON = {"poll_interval": timedelta(milliseconds=100), "listen": False}


def test_a_step_forward(books: Books, clock: Clock, rescue: Rescue) -> None:
    """When the clock jumps forward leases end early: who held them commits nothing, and the work is done once."""
    workers = [rescue(**_SOON), rescue(**_SOON)]
    books.get_under_way(30, seconds=0.01)
    clock.advance(_MINUTE)
    books.until_done()
    assert sum(worker.stats.taken for worker in workers) >= 60
    books.check()


def test_a_step_back(books: Books, database: Database, clock: Clock, rescue: Rescue) -> None:
    """When the clock jumps back what was sent before waits at most as long as the step; what is sent after goes on,
    in other channels at once.
    """
    rescue(**_SOON)
    books.get_under_way(10, seconds=0.01)
    clock.advance(-_MINUTE)
    before = len(books.effects())
    books.send(3, "fresh")
    until(lambda: len(books.effects()) >= before + 6, "what is sent after is done")
    # Leases of the time before the step end with the next one.
    until(lambda: not database.value("select count(*) from fq_message where lease_id is not null"), "all are settled")
    clock.advance(_MINUTE)
    books.until_done()
    # No lease ended early: nothing was delivered twice.
    assert set(books.effects().values()) == {1}
    books.check()


def test_a_step_back_is_waited_out(books: Books, clock: Clock, rescue: Rescue) -> None:
    """Nothing stalls for longer than the step: a second back, and all is done by itself a second later."""
    rescue(**_SOON)
    books.queue.configure_channel(books.engine, "rated", ChannelPolicy(rate=Rate(50, burst=2)))
    books.get_under_way(10, "narrow", "wide", "rated", seconds=0.005)
    clock.advance(-timedelta(seconds=1))
    books.until_done()
    # No lease ended early: nothing was delivered twice.
    assert set(books.effects().values()) == {1}
    books.check()


def test_a_crash_before_a_step_forward(books: Books, clock: Clock, child: StartChild, rescue: Rescue) -> None:
    """What a dead worker held comes back as soon as the clock is past its lease."""
    books.send(2)
    doomed = child(stops=["written"], lease=20.0)
    doomed.reaches("written")
    doomed.kill()
    clock.advance(_MINUTE)
    rescue(**_SOON)
    books.until_done()
    books.check()


def test_a_crash_before_a_step_back(
    books: Books, database: Database, clock: Clock, child: StartChild, rescue: Rescue
) -> None:
    """What a dead worker held stays out until the clock is past its lease, the step later, and comes back then."""
    books.send(1, "wide")
    doomed = child(stops=["written"], lease=3600.0)
    doomed.reaches("written")
    doomed.kill()
    held = "select count(*) from fq_message where lease_id is not null and kind = 'kept'"
    fresh = "select count(distinct number) from effect where channel = 'fresh'"
    clock.advance(-_MINUTE)
    rescue(**_SOON)
    books.send(2, "fresh")
    until(lambda: database.value(fresh) == 4, "what is sent after is done")
    assert database.value(held) == 1
    clock.advance(_MINUTE)
    books.send(2, "fresh")
    until(lambda: database.value(fresh) == 8, "what is sent after is done")
    assert database.value(held) == 1
    clock.advance(timedelta(hours=2))
    books.until_done()
    books.check()
