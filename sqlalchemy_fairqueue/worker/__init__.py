"""Workers: they take messages, call handlers and settle deliveries, and survive failures of all parts around them.

Read this before any other file here. ``Worker`` calls handlers in threads, ``AsyncWorker`` as tasks of an event loop;
all else is the same for both. ``runtime`` creates the parts once for each start; ``timings`` holds most durations.

The table lists the threads; ``-fetch`` stands for ``<worker>-fetch``. Most threads have their own connection
(``connection``), which does not come from the engine's pool. The first three and ``-limits`` are Loopers (``threads``),
which call duties again and again, even after a failure. A round is work that is too long for a duty, in its own thread.

==================== ==================================================================================================
``-fetch``           ``fetcher``: dequeues when a queue's polls (``timings``) are due and there is room, and fills the
                     executor's buffer. It registers waits (``wakeups``).
``-settle``          ``settler``: settles what handlers finished, in batches.
``-heartbeat``       ``duties``: extends leases, hears signals of queues whose polls are overdue, charges channels for
                     running handlers, cuts stuck calls of fetcher and settler, obeys requests to stop, starts rounds.
``-schedules``       ``duties``: a round that runs the due slots of schedules.
``-groups``          ``duties``: a round that folds notes into the counts of groups, and enqueues follow-ups.
``-housekeeping``    ``duties``: a round that makes and drops partitions of the history, and deletes what is old.
``-samples``         ``duties``: a round that records the figures of queues.
``-limits``          ``executor``: interrupts handlers whose time is over, and fails them. It has no connection.
a probe's thread     ``runtime``: asks the database whether it answers, on a connection for probes.
handlers             ``executor``: threads ``-handler-<n>``, or tasks of the application's event loop, on the
                     connections of their sessions. With ``isolation="process"`` they wait for ``child_processes``.
fairqueue-listener   ``wakeups``: one for each process and database, shared by all workers of the process.
==================== ==================================================================================================

State that several threads share, and who writes it:

* ``ServedQueue`` (``leases``): the fetcher adds leases and deliveries, the settler removes deliveries, the heartbeat
  extends and loses leases. A lease also ends by the worker's own clock. A lease once reported lost stays lost.
* The buffer: the fetcher adds deliveries, and handlers take them. The fetcher or a stop may take some, to release them.
* ``Executor.running``: the handler, its time limit and a stop may each try to settle a delivery. Whichever removes the
  delivery from ``running`` settles it.
* The settler's deque: any thread appends, the settler takes.
* ``PollSchedule``: the fetcher polls; the settler, the listener and ``is_drained`` ask for an earlier poll.
* ``FetchTrigger``: any thread sets it, the fetcher waits for it.
* ``HeldDelivery``: the heartbeat sets ``cancelled``, ``cancelled_at`` and, under a lock, ``charged``; a stop sets
  ``stopping``; whoever settles without the handler sets ``given_up``. Handlers see it through ``Context``.
* ``ChildProcesses``: a lock guards which child works on which delivery, so that a kill hits no other delivery's child.
* ``WorkerStats``: a lock guards ``failures``, ``timed_out`` and ``hung``. The other counters have one writer each.

Start (``Runtime.check``, ``Runtime.start``): the worker checks schemas, calls on_start functions (``Lifespan``), and
starts ``-limits``, handlers, ``-fetch``, ``-settle`` and ``-heartbeat``. If one fails, the others are stopped.

Stop (``Runtime.end``): the worker begins no further handler, and tells running ones that it stops. The fetcher stops
after its present dequeue. The worker releases the deliveries in the buffer; these attempts do not count. When the grace
period ends, the worker releases the deliveries of running handlers, their sessions refuse to commit, and child
processes are killed. A delivery whose handler exceeded its timeout has failed already and is not released. The settler
stops when all deliveries are settled, or after 10 seconds. Rounds begin no further statement, and their present
statements get one second; another worker does the rest. Meanwhile the heartbeat extends leases. It stops last, after
it has ended all leases without deliveries. Then the worker calls the on_stop functions.

Failures, and what the worker does then:

* The database is away, or refuses a call: each thread tries again by itself, with its own backoff (``timings``). The
  settler keeps finished deliveries, and settles them when the database answers, if their leases live so long.
* A lease cannot be extended in time: the worker's own clock ends it before the database does. Handlers are told (tasks
  are cancelled), their sessions refuse to commit, and the next dequeue uses a new lease.
* A dequeue is not answered: the next dequeue uses a new lease. As long as the old lease lives, the fetcher looks up
  and releases messages that the unanswered dequeue may have taken.
* A settlement is not answered: it is sent again; the delivery's token makes that harmless.
* A message is locked by others: its settlement is tried again alone, and delays no others.
* The database refuses one settlement of a batch: the settler halves the batch until that settlement is alone. Then it
  settles that delivery as a failed attempt without an error text or, if this is refused too, releases it.
* A connection is silent: the operating system's keepalive, the heartbeat's duty or the call's own limit cuts it.
* Notifications fail: workers poll more often until the listener is back.
* A handler hangs beyond its timeout: its delivery fails then, and what the handler still does settles nothing. Its
  thread is free again only when it returns; a child process is killed.
* A child process crashes, or cannot be started: the attempt counts, and the next message gets a new child.
* A schedule cannot be run: a worker writes the reason into its row and tries again after a minute. Other schedules run.
* A handler raises, times out, or its payload cannot be decoded: ``handling`` decides how to settle the delivery. The
  attempt counts, unless the delivery is released. No exception, not even ``SystemExit``, ends a thread.
* A handler blocks the event loop: deliveries in the buffer are given back, and no more are taken.
* A handler forks: the child ends when it leaves the handler (``threads``).
* The event loop is closed without a stop: the worker gives back what it held, and stops.
* The process dies: messages come back when their lease ends, and child processes kill themselves.
"""

from sqlalchemy_fairqueue.queue.contexts import Context
from sqlalchemy_fairqueue.worker.runtime import Health
from sqlalchemy_fairqueue.worker.telemetry import WorkerStats
from sqlalchemy_fairqueue.worker.worker import AsyncWorker, Worker

__all__ = ["AsyncWorker", "Context", "Health", "Worker", "WorkerStats"]
