"""Counts of a queue and lookups of messages, and verbs that withdraw messages."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypedDict, Unpack, get_args

from sqlalchemy_fairqueue.database.configuration import read_limits
from sqlalchemy_fairqueue.database.messages import find_messages, read_message_attempts, read_messages
from sqlalchemy_fairqueue.database.stats import (
    read_channel_stats,
    read_clock,
    read_competition,
    read_stats,
    sample_context,
    with_longest_out,
)
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.queue.base import QueueBase, RecordedWhere, Where, recorded, verb
from sqlalchemy_fairqueue.unit_of_work import changes as change
from sqlalchemy_fairqueue.unit_of_work.operations import Cancel
from sqlalchemy_fairqueue.values.checks import (
    IDS,
    check_choice,
    check_count,
    check_flag,
    check_message_id,
    check_names,
    checked_position,
)
from sqlalchemy_fairqueue.values.messages import CancelReceipt, MessageName, PurgeReceipt, undelivered
from sqlalchemy_fairqueue.values.reports import MessagePage, MessageState, Reason, Wait
from sqlalchemy_fairqueue.values.waits import with_waits

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.database.calls import Target
    from sqlalchemy_fairqueue.values.messages import UndeliveredFilters
    from sqlalchemy_fairqueue.values.reports import ChannelStats, MessageDetails, QueueStats


_WHOLE = 256 * 2**20
_BEGINNING = 65_536
_MOST_AHEAD = 1000
_SCAN = 2000
_ATTEMPTS = 100
ERROR = 2**20


class MessageNameWords(TypedDict, total=False):
    """The arguments that name messages otherwise than by id: a channel with a key, an ordering key, or both."""

    channel: str | None
    key: str | None
    ordering_key: str | None


class LookupMethods(QueueBase):
    """stats, channels, message and messages: sent at once, without locks. The last two need the grant "operator"."""

    @verb
    def stats(self, where: Where) -> QueueStats:
        """Return counts of messages by state, of consumers, and of messages that limits, rates or a pause hold back.

        The call takes about 10 us for each channel that has messages, and reads all scheduled, prioritised, leased and
        dead messages. It reads neither the other messages nor idle channels.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> queue.stats(engine).ready
            1
        """
        return self._ask(where, partial(read_stats, target=self._target))

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
        """Return channels, at most *limit* (1 to 100,000), sorted by name as UTF-8 bytes.

        Each channel comes with its counts, its policy, and when it was last served. *after* is the last name of the
        previous page. *channel* restricts the answer to this channel, and *busy* to channels that have messages, or
        signals that no dequeue has heard.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1)
            >>> [(channel.channel, channel.ready) for channel in queue.channels(engine)]
            [('customer-7', 1)]
        """
        check_names(channel=channel, after=after)
        check_count("limit", limit, 1, 100_000)
        check_flag("busy", busy)
        named = None if channel is None else [channel]
        asked = partial(read_channel_stats, target=self._target, channels=named)
        return self._ask(where, partial(asked, limit=limit, after=after, busy=busy))

    @verb
    def message(
        self, where: Where, message_id: int | None = None, **named: Unpack[MessageNameWords]
    ) -> MessageDetails | None:
        """Return one unsettled message with its whole content, by its id, or by its channel and key or ordering key.

        ``queue.codec.decode(message.content)`` is its payload. ``wait`` says why the message waits, and who holds what
        it waits for. The result is None if the message is done, dead or withdrawn, or never existed. A message that was
        cancelled while leased is still found by its id, but not by its *key*. If several messages have the
        *ordering_key*, the call returns the leased one, or else the one that goes next.

        If the message waits for its turn, or for a limit or rate that its channel shares, ``wait.takers`` names up to
        three other channels with the most leased messages. ``entitled`` is the share of all leased messages that a
        taker's weight gives it. In large queues this share is an upper bound, since the call adds up the weights of at
        most 1,000 ready channels.

        Example:
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1, key="invoice-12").message_id
            >>> queue.message(engine, channel="customer-7", key="invoice-12").message_id == message_id
            True
        """
        wanted = checked_message(message_id, **named)

        def work(connection: Connection) -> MessageDetails | None:
            which = [wanted] if isinstance(wanted, int) else wanted
            found = read_messages(connection, self._target, which, content_bytes=_WHOLE, ahead=_MOST_AHEAD)
            if not found:
                return None
            message = found[0]
            if message.deliveries:
                attempts = read_message_attempts(
                    connection, self._target, message.message_id, limit=_ATTEMPTS, chars=ERROR
                )
                message = replace(message, history=tuple(attempts))
            if message.consumer is not None:
                return message
            return replace(message, wait=_wait(connection, self._target, message))

        return self._ask(where, work)

    @verb
    def messages(
        self,
        where: Where,
        *,
        channel: str | None = None,
        state: MessageState | None = None,
        kind: str | None = None,
        key: str | None = None,
        limit: int = 100,
        after: str | None = None,
        scan: int = _SCAN,
    ) -> MessagePage:
        """Return a page of the unsettled messages that match all filters, with the first 65,536 bytes of each content.

        Messages of one channel come in the order of delivery: first the leased messages, by id, then the undelivered
        ones. Messages of the whole queue come by id, in the order of their enqueues. A message that keeps its place in
        the order is on exactly one page, whatever is enqueued or settled between pages. A message that is leased or
        given back between two pages may be on both or neither.

        *state* is "leased", "ready", "held" or "scheduled". *key* needs a channel. *limit* is 1 to 10,000. To get the
        next page, give ``page.next`` as *after* and the same filters; on the last page ``page.next`` is None.

        A page also ends when the call has looked at *scan* (1 to 1,000,000) messages. Some of these may not match the
        filters, so a page before the last may be empty. The call reads the ids of all leased messages of the queue if
        *state* is "leased". It reads these ids too if you give a *channel* but no *state*.

        Example:
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
            >>> page = queue.messages(engine, channel="customer-7", state="ready", limit=50)
            >>> [message.message_id for message in page] == [message_id]
            True
        """
        check_names(channel=channel, kind=kind, key=key)
        if state is not None:
            check_choice("state", state, get_args(MessageState))
        if key is not None and channel is None:
            raise InvalidArgument(f"key is {key!r:.80} without a channel; a key belongs to a channel: give both")
        check_count("limit", limit, 1, 10_000)
        check_count("scan", scan, 1, 1_000_000)
        step, at, last_id = (None, None, None) if after is None else _position(after, channel)
        if channel is not None and key is not None:
            name = MessageName(channel, key, None)

            def holder(connection: Connection) -> MessagePage:
                found = read_messages(connection, self._target, name, content_bytes=_BEGINNING)
                now = read_clock(connection, self._target.schema)
                fitting = (one for one in found if kind in {None, one.kind} and state in {None, one.state(now)})
                return MessagePage(tuple(fitting) if after is None else (), None)

            return self._ask(where, holder)
        which = {"channel": channel, "state": state, "kind": kind}
        find = find_messages(self._target, limit=limit, scan=scan, step=step, at=at, message_id=last_id, **which)

        def work(connection: Connection) -> MessagePage:
            rows = find.rows(connection)
            ids = [row.message_id for row in rows if row.message_id is not None]
            # A message that was settled between the two calls is left out.
            messages = tuple(read_messages(connection, self._target, ids, content_bytes=_BEGINNING))
            end = None if len(ids) == len(rows) else f"{rows[-1].step}.{rows[-1].at}.{rows[-1].last_id}"
            return MessagePage(messages, end)

        return self._ask(where, work)


def _wait(connection: Connection, target: Target, message: MessageDetails) -> Wait | None:
    now = sample_context(connection, target.schema).at
    if message.due_at > now:
        return Wait(Reason.SCHEDULED, message.due_at)
    if message.behind is not None:
        return Wait(Reason.ORDERING_KEY, behind=message.behind)
    capacity, competition, own = read_competition(connection, target, [message.channel])
    # The message is ready, so its channel is ready too. The bounded reading above may not know that.
    own = [replace(one, oldest_ready_at=message.due_at) for one in own]
    limits = read_limits(connection, target.schema, queue=target.queue)
    waiting = with_longest_out(connection, target, with_waits(capacity, competition, limits, own, now))
    return next((one.wait for one in waiting), None)


def _position(after: object, channel: str | None) -> tuple[int, ...]:
    """Decode *after* into three numbers that say where the last page ended: a step, a place in it, and a message id.

    Step 1 is the leased messages of a channel, and step 2 its undelivered messages. Step 3 is all messages of the
    queue, and step 4 its leased messages.
    """
    steps = range(3, 5) if channel is None else range(1, 3)
    return checked_position(after, "channel and state", steps, range(-(2**63), 2**63), IDS)


def checked_message(
    message_id: int | None, *, channel: str | None = None, key: str | None = None, ordering_key: str | None = None
) -> int | MessageName:
    named = channel is not None and (key is not None or ordering_key is not None)
    if named == (message_id is not None) or (not named and (channel or key or ordering_key) is not None):
        raise InvalidArgument(
            f"message_id is {message_id!r:.80}, channel {channel!r:.80}, key {key!r:.80}, "
            f"ordering_key {ordering_key!r:.80}; give an id, or a channel with a key or an ordering_key"
        )
    if channel is None:
        return check_message_id(message_id)
    check_names(channel=channel, key=key, ordering_key=ordering_key)
    return MessageName(channel, key, ordering_key)


class WithdrawalMethods(QueueBase):
    """cancel and purge: recorded on a session, sent at once on a Connection or Engine."""

    @recorded
    def cancel(
        self, where: RecordedWhere, message_id: int | None = None, **named: Unpack[MessageNameWords]
    ) -> CancelReceipt:
        """Withdraw a message, or all messages of an ordering key. If none is found, nothing happens.

        Instead of an id give a *channel* with a *key*, an *ordering_key* or both. If a consumer holds the message, a
        completion still counts; after any other settlement the message is gone. A worker that holds the message learns
        of the cancel at its next heartbeat. The message gives up its key when the cancel is sent.

        At the COMMIT a session first looks up the messages that cancels name by key or ordering key, then sends its
        enqueues, then its cancels. So such a cancel finds no message that the same session enqueues. An enqueue after
        the cancel, under the same key, finds the key still taken, and the COMMIT raises DuplicateMessage. To rewrite
        the message, use ``enqueue(..., on_duplicate="replace")``, or cancel it in an earlier transaction.

        The call waits for the message's lock, and holds it until the transaction ends; dequeues skip a locked message.

        Example:
            >>> message_id = queue.enqueue(engine, channel="customer-7", payload=1).message_id
            >>> queue.cancel(engine, message_id).outcome
            'cancelled'
        """
        wanted = checked_message(message_id, **named)
        receipt = CancelReceipt(message_id)
        return self._perform(where, [Cancel(self._target, receipt, wanted)], receipt)

    @recorded
    def purge(self, where: RecordedWhere, channel: str, **filters: Unpack[UndeliveredFilters]) -> PurgeReceipt:
        """Delete all messages of a channel that no consumer holds and that match all filters.

        The filters are *kind*, *key* and *ordering_key*; *state*: "ready", "scheduled" or "held", as the message stands
        when the call is sent; *since* and *until* (aware): enqueued at *since* or later, and before *until*. Leased
        messages stay, and so do messages that another transaction has locked or not committed. A transaction sends its
        enqueues first, so its own messages are deleted too.

        The call locks the channel's state and the messages until the transaction ends; until then the channel is not
        served. The call waits for a dequeue that is serving the channel. A million messages take seconds. Without
        *key*, *ordering_key* or the state "scheduled" the call reads all undelivered messages of the channel.

        Example:
            >>> receipt = queue.enqueue(engine, channel="customer-7", payload=1, kind="parse")
            >>> queue.admin.count_undelivered(engine, "customer-7", kind="parse", state="ready")
            1
            >>> queue.purge(engine, "customer-7", kind="parse", state="ready").purged
            1
        """
        which = undelivered(channel, **filters)
        receipt = PurgeReceipt(channel)
        return self._perform(where, [change.purge(self._target, channel, which, receipt)], receipt)
