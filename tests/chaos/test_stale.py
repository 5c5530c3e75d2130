"""A worker that was frozen for longer than its lease is stale when it goes on: it can end nothing that it held."""

import signal

from tests.chaos.books import Books
from tests.chaos.business import KEPT, PLAIN
from tests.chaos.children import StartChild
from tests.chaos.conftest import Rescue
from tests.fixtures.waits import Waits


def _times(books: Books, kind: str) -> set[int]:
    """How often messages of a kind had their effect."""
    effects = books.effects()
    return {effects[row.number] for row in books.database.rows("select number from sent where kind = :kind", kind=kind)}


def test_a_stale_worker(books: Books, child: StartChild, rescue: Rescue) -> None:
    """Frozen beyond its lease and thawed, a worker cannot complete, retry, release, bury, extend or commit anything:
    another one has done its messages, and it goes on with new ones.
    """
    books.queue.configure(books.engine, max_concurrency=None)
    books.send(2, "wide")
    frozen = child(stops=["written", "effected"], concurrency=4, verbs=True, lease=2.0)
    frozen.reaches("written", "written", "effected", "effected")
    frozen.send(signal.SIGSTOP)
    other = rescue()
    books.until_done()
    frozen.send(signal.SIGCONT)
    frozen.go()
    for _ in range(2):
        outcomes = frozen.hear("verbs")
        assert len(outcomes) == 12
        assert set(outcomes.values()) == {"LeaseLost"}
    assert _times(books, KEPT) == {1}
    # Without a session the effect of the frozen one had happened, and counts as well.
    assert _times(books, PLAIN) == {2}
    other.stop()
    books.send(1)
    books.until_done()
    frozen.send(signal.SIGTERM)
    assert frozen.hear("stopped")["lost"] >= 2
    assert frozen.ended() == 0
    books.check()


def test_frozen_while_it_commits(books: Books, child: StartChild, rescue: Rescue, waits: Waits) -> None:
    """What a frozen worker had settled in an open transaction is nobody else's until that has ended; it counts once."""
    books.send(2, "wide")
    frozen = child(stops=["committing"], concurrency=1)
    frozen.reaches("committing")
    frozen.send(signal.SIGSTOP)
    rescue()
    waits.until("select from fq_message having count(*) = 1")
    waits.until("select from fq_lease l join fq_message m on m.lease_id = l.id where l.expires_at < fq_now()")
    frozen.send(signal.SIGCONT)
    frozen.go()
    books.until_done()
    books.check()


def test_stale_in_the_loop(books: Books, child: StartChild, rescue: Rescue) -> None:
    """A frozen worker in an event loop is as stale: what its handlers wrote is rolled back."""
    books.send(2)
    frozen = child(stops=["written"], asynchronous=True, concurrency=2)
    frozen.reaches("written")
    frozen.send(signal.SIGSTOP)
    other = rescue()
    books.until_done()
    other.stop()
    frozen.send(signal.SIGCONT)
    frozen.go()
    books.send(1)
    books.until_done()
    frozen.send(signal.SIGTERM)
    frozen.hear("stopped")
    assert frozen.ended() == 0
    books.check()
