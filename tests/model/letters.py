"""Rules of dead letters: given another life, or deleted for good, in an open transaction or one of their own."""

from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.model.business import CHANNELS, TRANSACTIONS
from tests.model.keys import Keys
from tests.model.work import Effects

WHICH = st.none() | st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True)


class Letters(Keys):
    """What administrators do with dead letters."""

    @rule(tx=st.none() | TRANSACTIONS, which=WHICH, limit=st.sampled_from([1, 2, 1000]))
    @precondition(lambda self: self.books.dead)
    def redrive(self, tx: int | None, which: list[int] | None, limit: int) -> None:
        """Those that are named, or the oldest whose key is free, live again with the same ids; those whose key another
        message has come after these and stay dead.
        """
        own, died = self._seen(tx)
        ids = self._named(which)
        if ids is None:
            free = died.keys() - self.others(tx).letters
            taken = sorted(free, key=lambda one: (self._redriven(one, [one], own) == "duplicate", died[one]))[:limit]
        else:
            taken = sorted(died.keys() & set(ids), key=lambda one: died[one])
        expected = dict.fromkeys(ids or taken, "missing") | {one: self._redriven(one, taken, own) for one in taken}
        if self._would_wait(tx, ids, taken):
            return
        before = self.world.now()

        found = self.queue.dead_letters.redrive(self._where(tx), ids, limit=limit)

        assert found == expected
        for outcome in found.values():
            self.saw(f"redrive: {outcome}")
        back = [one for one in taken if expected[one] == "redriven"]
        window = before, self.world.now()
        self._done(tx, Effects(letters=set(taken), redriven=dict.fromkeys(back, window)))

    def _redriven(self, message_id: int, taken: list[int], own: Effects) -> str:
        channel, key = name = self.books.dead[message_id].channel, self.books.dead[message_id].key
        if key is None:
            return "redriven"
        holder = self.books.holder_of(channel, key)
        older = [*own.redriven, *taken[: taken.index(message_id)]]
        added = [one.wanted for one in own.added if one.outcome == "created"]
        stands = (
            (holder is not None and holder.id not in own.without_key())
            or any((one.channel, one.key) == name and one.number not in own.purged_new for one in added)
            or any(
                (self.books.dead[one].channel, self.books.dead[one].key) == name and one not in own.purged
                for one in older
            )
        )
        return "duplicate" if stands else "redriven"

    @rule(tx=st.none() | TRANSACTIONS, which=WHICH, channel=st.none() | CHANNELS)
    @precondition(lambda self: self.books.dead)
    def purge_dead(self, tx: int | None, which: list[int] | None, channel: str | None) -> None:
        """Those that are named, of a channel, or all, are gone for good."""
        _, died = self._seen(tx)
        ids = self._named(which)
        met = {one for one in died if channel is None or self.books.dead[one].channel == channel}
        met = met & set(ids) if ids is not None else met - self.others(tx).letters
        if self._would_wait(tx, ids, []):
            return

        purged = self.queue.dead_letters.purge(self._where(tx), ids, channel=channel)

        assert purged == len(met)
        self.saw("purge of dead letters" if met else "purge of no dead letters")
        self._done(tx, Effects(letters=met, purged_letters=met), settles=False)

    def _seen(self, tx: int | None) -> tuple[Effects, dict[int, int]]:
        """What the transaction has done, and the dead letters that it sees, with the instants of their deaths."""
        own = Effects() if tx is None else self.session(tx)[1].sent
        gone = own.redriven.keys() | own.purged_letters
        return own, {one: at for one, at in self.world.deaths().items() if one not in gone}

    def _named(self, which: list[int] | None) -> list[int] | None:
        if which is None:
            return None
        # Some that live, too.
        known = [*sorted(self.books.dead), *sorted(self.books.messages)[:2]]
        return sorted({known[number % len(known)] for number in which})

    def _would_wait(self, tx: int | None, ids: list[int] | None, taken: list[int]) -> bool:
        others = self.others(tx)
        keyed = [self.books.dead[one] for one in taken if self.books.dead[one].key is not None]
        waits = bool(set(ids or ()) & others.letters) or any(
            others.touches_key(self.books, one.channel, one.key or "") for one in keyed
        )
        own_dead = tx is not None and "dead" in self.open[tx].sent.ended.values()
        if waits:
            self.saw("would wait")
            note("    (not done: it would wait for a lock)")
        return waits or own_dead

    def _where(self, tx: int | None) -> Any:
        return self.world.engine if tx is None else self.sessions[tx]

    def _done(self, tx: int | None, effects: Effects, *, settles: bool = True) -> None:
        if tx is None:
            self.apply(effects)
        else:
            self.open[tx].layers[-1].sent.merge(effects)
            self.open[tx].settled |= settles
