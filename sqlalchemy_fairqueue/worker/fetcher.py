"""Fetcher of a worker: one thread dequeues what handlers can begin soon, from all queues in turn.

A failed dequeue may have taken messages that the worker does not know of. So the next dequeue uses a new lease, and the
unknown messages come back when the old lease ends. But while handlers work under the old lease, the heartbeat extends
it. So the fetcher looks up unknown messages under the old lease and releases them. It looks again at growing intervals,
since the network may deliver the dequeue to the server much later.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy_fairqueue.database.deliveries import held_tokens, settlement
from sqlalchemy_fairqueue.queue.handlers import handlers_of
from sqlalchemy_fairqueue.worker.connection import DedicatedConnection
from sqlalchemy_fairqueue.worker.leases import RELEASE
from sqlalchemy_fairqueue.worker.threads import Duty, Looper
from sqlalchemy_fairqueue.worker.wakeups import WaitRegistration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from sqlalchemy_fairqueue.values.messages import Batch, Deliveries, Delivery
    from sqlalchemy_fairqueue.worker.executor import Executor
    from sqlalchemy_fairqueue.worker.leases import ServedQueue
    from sqlalchemy_fairqueue.worker.options import WorkerOptions
    from sqlalchemy_fairqueue.worker.settler import Settler


class Fetcher(Looper):
    """The thread that takes the messages of one worker. It ends by itself if the executor is closed.

    Attributes:
        unanswered: The leases of unanswered dequeues and, after a reconnection, all leases with deliveries. For each,
            the time of the next lookup, by the worker's clock, and the delay before it. Each lookup doubles the delay.
    """

    def __init__(
        self,
        options: WorkerOptions,
        queues: Sequence[ServedQueue],
        executor: Executor,
        settler: Settler,
        *,
        ended: Callable[[], None],
    ) -> None:
        duties = [
            Duty("look up unanswered dequeues", self._look_up_unanswered, options.timings.unanswered_after),
            Duty("fetch messages", self._round, options.timings.longest_sleep),
        ]
        super().__init__("fetch", duties, options, event=executor.trigger, last=self._end)
        self.connection: DedicatedConnection = DedicatedConnection(options)
        self.settler = settler
        self.unanswered: dict[tuple[ServedQueue, int], tuple[float, float]] = {}
        # The first queue is polled first, and then moves to the end.
        self._queues = list(queues)
        self._executor = executor
        self._waits = WaitRegistration(self.connection, options, executor.trigger)
        # Called at the end of the thread.
        self._ended = ended
        # What ``connection.made`` was when all leases were last noted for a lookup. It changes with each reconnection.
        self._made = 0

    def is_over(self) -> bool:
        return self._stopping or self._executor.is_closed()

    def _end(self) -> None:
        # A dequeue that ended during the stop may have added to the buffer.
        self.give_back()
        self._waits.close()
        self.connection.close()
        self._ended()

    def give_back(self) -> None:
        while (held := self._executor.buffer.pop()) is not None:
            for one in held.batch:
                self.settler.settle(one, RELEASE)

    def _round(self) -> float:
        """Dequeue from queues whose next poll is due, if there is room. Return the most seconds until the next call."""
        executor, trigger, now = self._executor, self._executor.trigger, self.options.clock()
        trigger.refill_at = -1
        # If the next delivery has waited in the buffer for long, release the whole buffer: other workers may be free.
        if now - executor.buffer.next_taken_at() > self.options.timings.stale_after:
            self.give_back()
        buffered = len(executor.buffer)
        busy = executor.busy(now)
        spare = self._spare()
        room = executor.prefetch.room(executor.free(), buffered, busy) if spare > 0 else 0
        # Set before the check, so that each settlement from now on wakes the fetcher.
        trigger.is_backlogged = True
        trigger.is_backlogged = self.settler.backlog > self.options.timings.unsettled
        if not room or trigger.is_backlogged:
            trigger.refill_at = (executor.prefetch.ahead(busy) if spare > 0 else buffered) // 2
            # A handler that finished before refill_at was set did not wake the fetcher. So if a handler is free and
            # nothing is buffered or backlogged, the next call comes at once. Otherwise it comes soon, since the buffer
            # may have to be given back.
            is_hungry = executor.free() and not executor.buffer and not trigger.is_backlogged
            return 0 if is_hungry else self.options.timings.stale_after / 2
        due = [queue for queue in self._queues if queue.polls.next_at <= now]
        if due:
            self._take(due, room)
            return 0
        return max(0.0, min(queue.polls.next_at for queue in self._queues) - now)

    def note_unanswered(self, queue: ServedQueue, lease_id: int | None) -> None:
        if lease_id is not None:
            after = self.options.timings.unanswered_after
            self.unanswered[queue, lease_id] = self.options.clock() + after, after

    def _look_up_unanswered(self) -> None:
        """Release messages that unanswered dequeues took, also while the worker has no room and so does not dequeue.

        After a reconnection, look at all leases with deliveries. A failover, for example, may have undone settlements,
        so that messages are leased again although none of this worker's handlers has them.
        """
        if self._made != self.connection.made:
            self._made = self.connection.made
            for queue in self._queues:
                for lease in queue.held():
                    self.note_unanswered(queue, lease.lease_id)
        now = self.options.clock()
        for (queue, lease_id), (at, wait) in list(self.unanswered.items()):
            if at <= now:
                # Noted before the call, which may fail.
                self.unanswered[queue, lease_id] = now + 2 * wait, 2 * wait
                if not self.connection.run(partial(self._give_back_unknown, queue=queue, lease_id=lease_id)):
                    del self.unanswered[queue, lease_id]

    def _give_back_unknown(self, connection: Connection, queue: ServedQueue, lease_id: int) -> bool:
        """Release messages of a lease that are unknown to the worker. Return whether to look at the lease again."""
        lease = queue.leases.get(lease_id)
        if lease is None or not lease.held:
            # Nobody extends the lease, so it ends by itself.
            return False
        # Read before the query, since only this thread adds deliveries, and a message may be settled in between.
        known = {held.delivery.message_id for held in lease.held.copy()}
        tokens = held_tokens(connection, queue.target, lease_id)
        unknown = [token for token in tokens if token.message_id not in known]
        if not unknown:
            return True
        self.options.log.warning(
            "gives back %d messages of queue %s that are under its lease, and that it does not know of",
            *(len(unknown), queue.queue.name),
            extra={"queue": queue.queue.name, "message_ids": tuple(token.message_id for token in unknown)},
        )
        # Wake other workers, since this one may have no free handler.
        delays, notify = [None] * len(unknown), queue.target.notify
        settlement(queue.target, "release", unknown, delays=delays, notify=notify).rows(connection)
        return True

    def _take(self, due: list[ServedQueue], room: int) -> None:
        for number, queue in enumerate(due):
            # The queue's share of the room, rounded up. Later queues share what it leaves.
            limit, spare = -(-room // (len(due) - number)), self._spare()
            if not limit or spare <= 0 or self._stopping:
                break
            try:
                room -= self._take_from(queue, limit, spare)
                queue.backoff.succeeded()
            except BaseException as error:  # noqa: BLE001 - after any failure the worker and its other queues go on
                self.options.stats.count("failures")
                queue.polls.failed(self.options.clock(), queue.backoff.failed(error))
        self._queues.remove(due[0])
        self._queues.append(due[0])

    def _spare(self) -> int:
        return self.options.max_bytes - self._executor.buffer.size()

    def _take_from(self, queue: ServedQueue, limit: int, max_bytes: int) -> int:
        consumer = queue.consumer
        self._waits.before_poll(queue)
        began = self.options.clock()
        queue.polls.begin(began)
        with queue.dequeuing:
            lease_id = consumer.lease_id
            tracked = None if lease_id is None else queue.leases.get(lease_id)
            if tracked is not None and tracked.lost:
                consumer.forget_leases()
                lease_id = None
            try:
                taken = self.connection.run(
                    lambda connection: consumer.dequeue(connection, limit, self.options.ask, max_bytes)
                )
            except BaseException:
                self.note_unanswered(queue, lease_id)
                raise
            now = queue.heard_at = self.options.clock()
            self._executor.prefetch.fetched(now - began)
            batches, failure = self._batches(queue, taken, max_bytes)
        self.options.stats.dequeues += 1
        due_in = None if taken.due_in is None else taken.due_in.total_seconds()
        if taken:
            self._executor.buffer.extend([queue.hold(batch, now) for batch in batches])
            self._executor.begin()
            self.options.stats.taken += sum(map(len, batches))
            queue.polls.found(now, due_in, count=len(taken), full=len(taken) == limit)
            if queue.polls.needs_no_wait():
                self._waits.take_back(queue)
        else:
            self.options.stats.empty += 1
            queue.polls.nothing(now, due_in, locked=consumer.is_held_up)
        if failure is not None:
            raise failure
        return len(taken)

    def _batches(
        self, queue: ServedQueue, taken: Deliveries, max_bytes: int
    ) -> tuple[list[list[Delivery]], BaseException | None]:
        """Return the deliveries of each call of a handler, after taking more messages to fill batches.

        If the database fails to give more, the failure is returned too; taken messages are handled in any case.
        """
        batches: list[list[Delivery]] = []
        unfilled: dict[tuple[str, str | int], tuple[Batch, list[Delivery]]] = {}
        for delivery in taken:
            handler = handlers_of(queue.queue).get(delivery.kind)
            # A message that was tried before comes alone, since it may be the one that fails or kills its process.
            size = None if handler is None or delivery.attempt > 1 else handler.batch
            # Other taken messages may join this message's batch, unless the batch has a max_cost or the message has an
            # ordering key: only the database knows what messages cost, and which message of a key comes next.
            is_known = size is None or (size.max_cost is None and delivery.ordering_key is None)
            key = delivery.channel, delivery.kind if is_known else delivery.message_id
            if size is not None and key in unfilled and len(unfilled[key][1]) < size.max_messages:
                unfilled[key][1].append(delivery)
                continue
            batches.append([delivery])
            if size is not None:
                unfilled[key] = size, batches[-1]
        spare = max_bytes - sum(len(delivery.content) for delivery in taken)
        for size, batch in unfilled.values():
            room = size.max_messages - len(batch)
            if not room or spare <= 0:
                continue
            first = batch[-1]
            take = partial(queue.consumer.take_more, first=first, limit=room, max_cost=size.max_cost, max_bytes=spare)
            try:
                more = self.connection.run(take)
            except BaseException as error:  # noqa: BLE001 - raised when what was taken is in the buffer
                self.note_unanswered(queue, first.lease.id)
                return batches, error
            batch.extend(more)
            spare -= sum(len(delivery.content) for delivery in more)
        return batches, None
