"""Stats methods of a queue: its counts, and those of its channels."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.queue.verbs import verb
from sqlalchemy_fairqueue.values import check_count, check_name

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.queue.verbs import Where
    from sqlalchemy_fairqueue.values import ChannelStats, QueueStats


class StatsMethods(QueueBase):
    """stats and channels: answered at once.

    Asked on a session or connection they are part of its transaction, on an engine they have one of their own.
    They lock nothing, and what a transaction has recorded but not sent is not counted.
    """

    @verb
    def stats(self, where: Where) -> QueueStats:
        """The numbers of ready, scheduled, leased and dead messages, who works on them, and what holds them up.

        It reads a little of each channel that has messages (10 us), and what is scheduled, prioritised, leased and
        dead, but neither the ready messages nor the state of idle channels.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> queue.stats(engine).ready
            1
        """
        return self._ask(where, partial(database.stats, target=self._target))

    @verb
    def channels(
        self,
        where: Where,
        channel: str | None = None,
        *,
        limit: int = 1000,
        after: str | None = None,
        busy: bool = False,
    ) -> list[ChannelStats]:
        """The state of each channel: its counts, its policy, when it was last served.

        Args:
            where: As for the class.
            channel: Only this one, if it exists. None: all, by name.
            limit: Most channels to return, 1 to 100,000.
            after: Only those whose names sort after this one, as UTF-8 bytes: the last name of the page before.
            busy: Only those that are not idle: with messages, ready, scheduled or leased, or with signals that no
                dequeue has heard yet. Idle channels cost nothing then, however many there are. Dead letters and pauses
                do not make a channel busy.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> [(channel.channel, channel.ready) for channel in queue.channels(engine)]
            [('customer-7', 1)]
        """
        for what, name in (("channel", channel), ("after", after)):
            if name is not None:
                check_name(what, name)
        check_count("limit", limit, 1, 100_000)
        if not isinstance(busy, bool):
            raise InvalidArgument(f"busy is {busy!r:.80}; give True (only channels with messages) or False")
        named = None if channel is None else [channel]
        asked = partial(database.channel_stats, target=self._target, channels=named)
        return self._ask(where, partial(asked, limit=limit, after=after, busy=busy))
