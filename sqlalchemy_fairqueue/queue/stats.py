"""Stats methods of a queue: its counts, those of its channels, who waits and who works."""

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
    from sqlalchemy_fairqueue.values import ChannelStats, ConsumerInfo, Contention, QueueStats, SharedLimit


class StatsMethods(QueueBase):
    """stats, channels, contention and consumers: answered at once.

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

    @verb
    def limits(self, where: Where, name: str | None = None) -> list[SharedLimit]:
        """The shared limits of the queue's schema, by name: what they allow, what is out, which queues draw from them.

        Args:
            where: As for the class.
            name: Only this one, if it exists. None: all.

        Example:
            >>> queue.configure_limit(engine, "mail", max_concurrency=3)
            >>> [(limit.name, limit.max_concurrency) for limit in queue.limits(engine, "mail")]
            [('mail', 3)]
        """
        if name is not None:
            check_name("limit", name)
        return self._ask(where, partial(database.limits, schema=self._target.schema, name=name))

    @verb
    def contention(self, where: Where, *, limit: int = 100) -> Contention:
        """The channels that wait longest and those with the most messages out, with what decides whose turn it is.

        It costs about what :meth:`stats` costs.

        Args:
            where: As for the class.
            limit: Most channels of each of the two sorts, 1 to 100,000.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> contention = queue.contention(engine)
        """
        check_count("limit", limit, 1, 100_000)
        return self._ask(where, partial(database.contention, target=self._target, limit=limit))

    @verb
    def consumers(self, where: Where, *, limit: int = 100) -> list[ConsumerInfo]:
        """The consumers with a lease that has not expired, and what each holds, the most messages first.

        Args:
            where: As for the class.
            limit: Most consumers to return, 1 to 100,000.

        Raises:
            InvalidArgument: A bad argument.

        Example:
            >>> queue.consumers(engine)
            []
        """
        check_count("limit", limit, 1, 100_000)
        return self._ask(where, partial(database.consumers, target=self._target, limit=limit))
