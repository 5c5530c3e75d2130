"""Methods for single messages that wait: one is put into another channel, or tried at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from sqlalchemy_fairqueue import database
from sqlalchemy_fairqueue.database import DeadLetterFilter
from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.queue.verbs import verb
from sqlalchemy_fairqueue.values import check_message_id, check_name

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.queue.verbs import Where
    from sqlalchemy_fairqueue.values import MoveOutcome, RetryNowOutcome


class MoveMethods(QueueBase):
    """move and retry_now: done at once, since they return what they found."""

    @verb
    def move(self, where: Where, message_id: int | None, channel: str) -> MoveOutcome:
        """Put a message that waits into another channel of the queue, where it stands by its time and priority.

        It keeps its id, key, payload and attempts. The channel is made if it is new. A bound of its backlog does not
        hold the message up. On a session or connection the move is part of the transaction, on an engine it has one of
        its own.

        In the lock order it counts as a settlement: the transaction cannot enqueue afterwards. Use an engine, or a
        transaction of its own. It waits for a transaction that makes the channel or adds the same key to it, then for
        one that delivers, settles, cancels or replaces the message, and locks all of these. A cancel that waits for the
        move finds the message missing, and must be called again.

        Args:
            where: A session, Connection or Engine.
            message_id: The message.
            channel: The channel to put it into.

        Returns:
            "moved"; "unchanged": it is in that channel; "leased": a consumer holds it, so that it stays; "duplicate":
            another message of that channel holds its key, so that it stays; "missing": done, dead, withdrawn, or of
            another queue.

        Raises:
            InvalidArgument: A bad argument.
            AutocommitError: On a session or connection in AUTOCOMMIT.

        Example:
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
            >>> queue.move(engine, message_id, "customer-8")
            'moved'
        """
        checked = check_message_id(message_id)
        check_name("channel", channel)
        asked = partial(database.move_message, target=self._target, message_id=checked, channel=channel)
        return self._ask(where, partial(asked, policy=self.defaults, notify=self.notify), settles=True)

    @verb
    def retry_now(self, where: Where, message_id: int | None) -> RetryNowOutcome:
        """Let a message be tried at once: one that waits for its time, or for its next attempt, or that is dead.

        One that waits is due now, and stands in its channel as if it had been enqueued without a delay. Its attempts
        stay counted. A dead letter is redriven, as by :meth:`redrive`. Limits, rates and pauses hold as ever.

        In the lock order it counts as a settlement: the transaction cannot enqueue afterwards. Use an engine, or a
        transaction of its own. It waits for one that delivers, settles, cancels or replaces the message, and locks it;
        of a dead letter it locks what a redrive locks.

        Args:
            where: A session, Connection or Engine.
            message_id: The message, or the dead letter.

        Returns:
            "due"; "unchanged": it was due already; "redriven": it was dead; "leased": a consumer holds it; "duplicate":
            it is dead, and another message holds its key, so that it stays dead; "missing": done, withdrawn, or of
            another queue.

        Raises:
            InvalidArgument: A bad argument.
            AutocommitError: On a session or connection in AUTOCOMMIT.

        Example:
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1, delay=timedelta(hours=1)).message_id
            >>> queue.retry_now(engine, message_id)
            'due'
        """
        checked = check_message_id(message_id)
        letter = DeadLetterFilter([checked])

        def work(connection: Connection) -> RetryNowOutcome:
            outcome = database.make_due(connection, self._target, checked, notify=self.notify)
            if outcome != "missing":
                return outcome
            found = database.redrive(connection, self._target, letter, limit=1, notify=self.notify)
            return cast("RetryNowOutcome", found[checked])

        return self._ask(where, work, settles=True)
