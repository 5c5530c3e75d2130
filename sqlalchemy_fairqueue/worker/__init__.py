"""Workers: they take messages, call handlers and settle deliveries, and survive failures of all parts around them.

Read this before any other file here. ``Worker`` calls handlers in threads, ``AsyncWorker`` as tasks of an event loop;
all else is the same for both. ``runtime`` makes the parts, in order, and gives each what it needs; a part is never
changed afterwards. ``timings`` has every duration, and no part reads another clock than the one that it was given.

Threads, most with a connection of its own (``connection``; never one of the application's pool):

==================== ==================================================================================================
``<name>-fetch``     ``fetcher``: dequeues when a queue's ``poll_schedule`` says so and ``prefetch`` has room, and
                     puts deliveries into the executor's buffer. It registers waits (``wakeups``), and gives back
                     what unanswered dequeues took.
``<name>-settle``    ``settler``: settles what handlers finished, in batches, through ``settlement_writer``.
``<name>-heartbeat`` ``duties``: the heartbeat (``heartbeat``) extends leases; further duties cut stuck calls of the
                     other two, hear signals while all handlers are at work, poll schedules and groups, and start the
                     rounds of the next row.
``<name>-schedules`` One round each, then the thread ends: ``schedules`` runs the slots that are due; ``groups``
``<name>-groups``    counts members that ended and enqueues follow-ups; ``duties.Housekeeping`` makes and drops days of
``-housekeeping``    the history, and deletes what is old. Each round has a connection for its own time.
``<name>-limits``    ``executors.handler_calls``: notices that the time of a handler is over. It has no connection.
a probe's thread     ``health``: asks the database whether it answers, on a connection of its own.
handlers             ``executors``: ``<name>-handler-<n>`` threads (``threads``), or the application's event loop
                     (``tasks``). They use the connections of their sessions. A handler that is declared with
                     ``isolation="process"`` runs in a process of ``child_processes``, for which its thread waits.
fairqueue-listener   ``notifications``: one a process and database, shared by all workers of the process.
==================== ==================================================================================================

State that several threads share, and who writes it:

* ``LeaseRegistry`` (``leases``): the fetcher adds leases and deliveries, the settler removes deliveries, the heartbeat
  extends and loses leases. A lease also ends by the worker's own clock, and stays lost once any thread was told so.
* The buffer: the fetcher adds, handlers take. ``Executor.running``: the thread that takes a delivery out decides how it
  is settled, so a handler, its time limit and a stop never all do.
* The settler's deque: any thread appends, the settler takes.
* ``PollSchedule``: the fetcher polls; the settler, the listener and ``is_drained`` ask for an earlier poll.
* ``FetchTrigger``: any thread sets it, the fetcher waits for it.
* ``HeldDelivery``: the heartbeat sets ``cancelled``, a stop ``stopping``, and who settles it without its handler
  ``given_up``. ``Context`` is the view that handlers get of it.
* ``ChildProcesses``: a lock guards which child works on which delivery, so that no child is killed for another one.
* ``WorkerStats``: one thread a counter, but for ``failures``, ``timed_out`` and ``hung``, which have a lock.

Start: schemas are checked; then functions of on_start are called (``lifespan``); then time limits, handlers' threads,
fetcher, settler, heartbeat. If a thread cannot be started, none is left, and what was opened is closed. The listener
starts with the fetcher's first poll.

Stop: no handler begins any more, and those at work are told. The fetcher stops after the dequeue that is under way;
what is in the buffer is given back, uncounted. Handlers have until the end of the grace; then their deliveries are
given back, their sessions refuse to commit, and child processes are killed. A delivery whose handler has exceeded its
timeout has failed before, so no stop gives it back. The settler stops when all is settled, after 15 seconds in any
case. Schedules, groups and housekeeping begin nothing further; the statement that is under way has a second, and
another worker does what is left. The heartbeat stops last: leases are extended until then, and then end if nothing is
held under them. Functions of on_stop are called after that.

Failures, and what the worker does then:

* The database is away, or refuses a call: each thread goes on alone, with a backoff of its own (``timings``). What
  handlers finished waits for the settler, under its leases.
* A lease cannot be extended in time: it is lost by the worker's own clock before it ends in the database. Handlers are
  told (tasks are cancelled), their sessions refuse to commit, and the next dequeue uses a new lease.
* A dequeue is not answered: the next one uses a new lease; what the first one may have taken is looked up and given
  back, as long as its lease lives.
* A settlement is not answered: it is sent again; the delivery's token makes that harmless.
* A message is locked by others: it is tried again alone, and keeps no other waiting.
* The database refuses one settlement: the calls are halved until it stands alone; it is settled by the next best verb.
* A connection is silent: the system's keepalive, the heartbeat's duty or the call's own limit cuts it.
* Notifications fail: workers poll more often, and the listener comes back by itself.
* A handler hangs beyond its timeout: its delivery fails then, and what the handler still does settles nothing. Its
  thread is not free before it returns; a child process is killed.
* A child process crashes, or cannot be started: it costs its message an attempt. The next message gets a new one.
* A schedule cannot be run: its row says why, and it is tried again after a minute. The other schedules go on.
* A handler raises, times out, or its payload cannot be decoded: ``decisions``. It costs its message an attempt. No
  exception, ``SystemExit`` included, ends a thread.
* A handler blocks the event loop: deliveries in the buffer are given back, and no more are taken.
* A handler forks: the child ends when it leaves the handler (``operating_system``).
* The event loop is closed without a stop: the worker gives back what it held, and stops.
* The process dies: messages come back when their lease ends, and child processes kill themselves.
"""

from sqlalchemy_fairqueue.queue.contexts import Context
from sqlalchemy_fairqueue.worker import results  # noqa: F401 - it serves those who wait for results
from sqlalchemy_fairqueue.worker.async_worker import AsyncWorker
from sqlalchemy_fairqueue.worker.health import Health
from sqlalchemy_fairqueue.worker.telemetry import WorkerStats
from sqlalchemy_fairqueue.worker.worker import Worker

__all__ = ["AsyncWorker", "Context", "Health", "Worker", "WorkerStats"]
