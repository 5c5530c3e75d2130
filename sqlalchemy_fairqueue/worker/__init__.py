"""Workers: they take messages, call handlers and settle deliveries, and survive failures of all parts around them.

Read this before any other file here. ``Worker`` calls handlers in threads, ``AsyncWorker`` as tasks of an event loop;
all else is the same for both. ``runtime`` creates the parts and gives each what it needs; none is replaced
afterwards. ``timings`` holds all durations. Each part reads only the clock that it was given.

Threads, most with a connection of its own (``connection``; never one of the application's pool). ``looper`` runs the
first three and the limits, after failures too:

==================== ==================================================================================================
``<name>-fetch``     ``fetcher``: dequeues when a queue's polls (``timings``) are due and there is room, and puts
                     deliveries into the executor's buffer. It registers waits (``wakeups``), and gives back what
                     unanswered dequeues took.
``<name>-settle``    ``settler``: settles what handlers finished, in batches.
``<name>-heartbeat`` ``duties``: the heartbeat (``leases``) extends leases, hears signals while all handlers are at
                     work, and charges for handlers that run; further duties cut stuck calls of the other two, look for
                     requests to stop, and start the rounds of the next row.
``<name>-schedules`` ``duties``: a round each, then the thread ends. Schedules run the slots that are due; groups count
``<name>-groups``    members that ended and enqueue follow-ups; housekeeping makes and drops days of the history, and
``-housekeeping``    deletes what is old; samples keep how queues stand. Each round has a connection for its own time.
``<name>-limits``    ``executor``: notices that the time of a handler is over. It has no connection.
a probe's thread     ``runtime``: asks the database whether it answers, on a connection of its own.
handlers             ``executor``: ``<name>-handler-<n>`` threads, or the application's event loop (``tasks``). They use
                     the connections of their sessions. A handler that is declared with ``isolation="process"`` runs in
                     a process of ``child_processes``, for which its thread waits.
fairqueue-listener   ``wakeups``: one a process and database, shared by all workers of the process.
==================== ==================================================================================================

State that several threads share, and who writes it:

* ``ServedQueue`` (``leases``): the fetcher adds leases and deliveries, the settler removes deliveries, the heartbeat
  extends and loses leases. A lease also ends by the worker's own clock. Once a thread was told of its loss, it stays
  lost.
* The buffer: the fetcher adds, handlers take.
* ``Executor.running``: the handler, its time limit and a stop may each try to settle a delivery. The first of them to
  remove it from here does.
* The settler's deque: any thread appends, the settler takes.
* ``PollSchedule``: the fetcher polls; the settler, the listener and ``is_drained`` ask for an earlier poll.
* ``FetchTrigger``: any thread sets it, the fetcher waits for it.
* ``HeldDelivery``: the heartbeat sets ``cancelled``, ``cancelled_at`` and, under a lock, ``charged``; a stop sets
  ``stopping``. A thread that settles the delivery without its handler sets ``given_up``. ``Context`` is the view that
  handlers get of it.
* ``ChildProcesses``: a lock guards which child works on which delivery, so that no child is killed for another one.
* ``WorkerStats``: one thread writes each counter. The exceptions are ``failures``, ``timed_out`` and
  ``hung``: several threads write them, under a lock.

Start (``Runtime.check``, ``Runtime.start``): schemas are checked; then functions of on_start are called (``lifespan``);
then time limits, handlers' threads, fetcher, settler, heartbeat. If a thread cannot be started, the worker stops the
others and closes what it opened. The listener starts with the fetcher's first poll.

Stop (``Runtime.end``): the worker begins no further handler, and tells those at work that it stops. The fetcher stops
after the dequeue that is under way. The worker releases the deliveries in the buffer; these attempts do not count.
Handlers have until the end of the grace; then the worker releases their deliveries, their sessions refuse to commit,
and child processes are killed. If a handler exceeded its timeout before, its delivery has already failed and is not
released. The settler stops when all deliveries are settled, and after 15 seconds in any case. Schedules, groups and
housekeeping begin nothing further; a statement that is under way gets one second, and another worker does the rest. The
heartbeat stops last: until then it extends leases, and then it ends those that hold nothing. The functions of on_stop
are called after that.

Failures, and what the worker does then:

* The database is away, or refuses a call: each thread goes on alone, with a backoff of its own (``timings``). What
  handlers finished waits for the settler, under its leases.
* A lease cannot be extended in time: it is lost by the worker's own clock before it ends in the database. Handlers are
  told (tasks are cancelled), their sessions refuse to commit, and the next dequeue uses a new lease.
* A dequeue is not answered: the next one uses a new lease. The fetcher looks up what the first one may have taken, and
  releases it as long as the lease lives.
* A settlement is not answered: it is sent again; the delivery's token makes that harmless.
* A message is locked by others: it is tried again alone, and keeps no other waiting.
* The database refuses one settlement of a batch: the settler halves the batch until that settlement is alone, and then
  uses the next best verb for it.
* A connection is silent: the system's keepalive, the heartbeat's duty or the call's own limit cuts it.
* Notifications fail: workers poll more often, and the listener comes back by itself.
* A handler hangs beyond its timeout: its delivery fails then, and what the handler still does settles nothing. Its
  thread is not free before it returns; a child process is killed.
* A child process crashes, or cannot be started: it costs its message an attempt. The next message gets a new one.
* A schedule cannot be run: a worker writes the reason into its row and tries again after a minute. Others go on.
* A handler raises, times out, or its payload cannot be decoded: ``handling``. It costs its message an attempt. No
  exception, ``SystemExit`` included, ends a thread.
* A handler blocks the event loop: deliveries in the buffer are given back, and no more are taken.
* A handler forks: the child ends when it leaves the handler (``operating_system``).
* The event loop is closed without a stop: the worker gives back what it held, and stops.
* The process dies: messages come back when their lease ends, and child processes kill themselves.
"""

from sqlalchemy_fairqueue.queue.contexts import Context
from sqlalchemy_fairqueue.worker.runtime import Health
from sqlalchemy_fairqueue.worker.telemetry import WorkerStats
from sqlalchemy_fairqueue.worker.worker import AsyncWorker, Worker

__all__ = ["AsyncWorker", "Context", "Health", "Worker", "WorkerStats"]
