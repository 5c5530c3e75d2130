"""Withdrawal methods of a queue: messages are cancelled or purged before they are delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.queue.base import QueueBase
from sqlalchemy_fairqueue.queue.verbs import recorded
from sqlalchemy_fairqueue.unit_of_work import changes as change
from sqlalchemy_fairqueue.unit_of_work.settlements import Cancel
from sqlalchemy_fairqueue.values.checks import check_message_id, check_name
from sqlalchemy_fairqueue.values.messages import CancelReceipt, PurgeReceipt

if TYPE_CHECKING:
    from sqlalchemy_fairqueue.queue.verbs import RecordedWhere


class WithdrawalMethods(QueueBase):
    """cancel and purge: recorded on a session, sent at once on a Connection or Engine."""

    @recorded
    def cancel(self, where: RecordedWhere, message_id: int | None) -> CancelReceipt:
        """Withdraw a message. If it is done, dead or unknown, nothing happens.

        A message that a consumer holds may still be completed; settled in any other way, it is gone. Its key is free
        at once, and its worker learns of it at the next heartbeat.

        In one transaction enqueues are sent first, so that the key of a message that it cancels still stands for them:
        to enqueue under it after the cancel was asked for raises DuplicateMessage. Rewrite the message by
        ``enqueue(..., on_duplicate="replace")``, or cancel in a transaction before.

        Locks the message until the transaction ends; dequeue passes it by meanwhile, and it is ready again if the
        transaction rolls back. Waits for a transaction that has the message locked.

        Returns:
            A receipt that has ``outcome`` once the transaction has committed; on a Connection at once.

        Raises:
            InvalidArgument: No message can have this id.

        Example:
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
            >>> queue.cancel(engine, message_id).outcome
            'cancelled'
        """
        checked = check_message_id(message_id)
        receipt = CancelReceipt(checked)
        return self._perform(where, [Cancel(self._target, checked, receipt)], receipt)

    @recorded
    def purge(self, where: RecordedWhere, channel: str) -> PurgeReceipt:
        """Delete the messages of a channel that no consumer holds, ready and scheduled, for good.

        Messages that are out stay, and so do those that another transaction has locked or not committed. In one
        transaction enqueues are sent first, so that what it enqueues to the channel is deleted as well. A channel that
        does not exist has nothing to delete.

        Locks the channel's state and the messages until the transaction ends: until then the channel is not served.
        Waits for a dequeue that is serving the channel. A channel of a million messages takes seconds.

        Returns:
            A receipt that has ``purged`` once the transaction has committed; on a Connection at once.

        Raises:
            InvalidArgument: A bad name.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> queue.purge(engine, "customer-7").purged
            1
        """
        check_name("channel", channel)
        receipt = PurgeReceipt(channel)
        return self._perform(where, [change.purge(self._target, channel, receipt)], receipt)
