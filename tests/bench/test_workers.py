"""Workers: their throughput, from commit to handler, wake-ups, history, idleness, and the asynchronous driver."""

from collections.abc import Mapping
from statistics import quantiles

from tests.bench.figures import Alternate, Figure, Report
from tests.bench.loads import Load, consume, produce, tasks
from tests.bench.processes import Task, each_once, measured, send_out, total
from tests.bench.python_api import Job, drain_async, enqueue_and_pause, loops, work
from tests.bench.stage import Stage, connected, driver_url
from tests.bench.wire import Wire

_PRODUCERS = 8
_POLLING = 0.2


def test_worker_beside_loops(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """A worker of four threads gets through a no-op handler at 0.7 of the speed of four loops that do nothing else."""
    messages = 100_000 if full else 20_000
    filled = stage.fill(channels=1_000, messages=messages)

    def measure(side: str) -> Mapping[str, float]:
        with stage.clone(filled) as conninfo:
            task = Task(work if side == "worker" else loops, (Job(driver_url(conninfo), messages),))
            return measured([task], messages=messages)

    found = alternate(("worker", "loops"), measure)
    what = f"Worker, no-op handler, 4 threads, {messages:,} messages"
    notes = {f"client us, {side}": found.told(side, "client us") for side in found}
    report.add(found.compare(what, "messages/s", ("worker", "loops"), "4 threads by hand", 0.7, notes=notes))


def test_an_async_worker_on_asyncpg(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """An AsyncWorker drains a queue on asyncpg as fast as on psycopg."""
    messages = 50_000 if full else 10_000
    filled = stage.fill(channels=1_000, messages=messages)

    def measure(driver: str) -> Mapping[str, float]:
        with stage.clone(filled) as conninfo:
            task = Task(drain_async, (Job(driver_url(conninfo, driver), messages, threads=8),))
            return measured([task], messages=messages)

    sides = ("asyncpg", "psycopg")
    found = alternate(sides, measure)
    what = f"AsyncWorker on asyncpg, no-op handler, {messages:,} messages"
    report.add(found.compare(what, "messages/s", sides, "psycopg", 1.0))
    report.add(found.compare(f"{what}, client", "us", sides, "psycopg", better="less", name="client us"))


def test_from_commit_to_handler(stage: Stage, report: Report, *, full: bool) -> None:
    """On an idle queue a message's handler starts within milliseconds of the commit, or of the next poll."""
    count = 600 if full else 150
    filled = stage.fill()
    for notify, reach in ((True, (0.005, 0.025)), (False, (_POLLING, _POLLING))):
        with stage.clone(filled) as conninfo:
            pause = 5.0 if notify else _POLLING
            job = Job(driver_url(conninfo), count, notify=notify, poll_interval=pause, seconds=120.0, ahead=True)
            done, made = send_out([Task(work, (job,)), Task(enqueue_and_pause, (job,))])
        each_once([done], messages=count)
        committed = dict(zip(made.ids, made.ended, strict=True))
        # The last moment is when all were completed.
        handled = zip(done.ids, done.ended, strict=False)
        waits = quantiles([started - committed[message] for message, started in handled], n=100)
        name = "with notifications" if notify else f"polling every {_POLLING} s"
        for part, limit in zip((50, 99), reach, strict=True):
            what = f"from commit to handler on an idle queue, {name}, p{part} of {count}"
            report.add(Figure(what, "ms", [1e3 * waits[part - 1]], [1e3 * limit], "the limit", 1.0, "less"))


def test_commits_with_and_without_wake_ups(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """Producers commit as often whether their consumers are woken by notifications or poll."""
    seconds = 20.0 if full else 4.0
    filled = stage.fill()

    def measure(side: str) -> Mapping[str, float]:
        with stage.clone(filled) as conninfo:
            url, notify, load = driver_url(conninfo), side == "notified", Load("fair", conninfo, 1, seconds=seconds)
            job = Job(url, notify=notify, poll_interval=_POLLING, seconds=seconds, ahead=True)
            _, *made = send_out([Task(work, (job,)), *tasks(_PRODUCERS, produce, load)])
        return {"transactions/s": total(made) / seconds}

    sides = ("notified", "polling")
    what = f"commits of {_PRODUCERS} producers beside a worker that is notified"
    report.add(alternate(sides, measure).compare(what, "transactions/s", sides, "one that polls", 0.9))


def test_history_on_and_off(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """Writing a row of history for each message leaves three quarters of the throughput."""
    messages = 200_000 if full else 50_000
    filled = stage.fill(channels=1_000, messages=messages)

    def measure(side: str) -> Mapping[str, float]:
        with stage.clone(filled) as conninfo, connected(conninfo) as wire:
            if side == "on":
                wire.run("select fairqueue.fq_set_queue('bench', '{\"history\": true}')")
                wire.run("select fairqueue.fq_keep_history()")
            figures = measured(tasks(2, consume, Load("fair", conninfo, 100)), messages=messages)
            written = int(wire.value("select count(*) from fairqueue.fq_history"))
        assert written == (messages if side == "on" else 0)
        return figures

    what = f"history on, by 100, {messages:,} messages, 2 consumers"
    report.add(alternate(("on", "off"), measure).compare(what, "messages/s", ("on", "off"), "history off", 0.75))


def test_an_idle_worker(stage: Stage, report: Report, *, full: bool) -> None:
    """A worker that has nothing to do asks the database less than once a second."""
    seconds = 120.0 if full else 30.0
    with stage.clone(stage.fill()) as conninfo, connected(conninfo) as wire:
        before = _transactions(wire)
        send_out([Task(work, (Job(driver_url(conninfo), 1, seconds=seconds),))])
        asked = (_transactions(wire) - before) / seconds
    what = f"an idle worker, {seconds:.0f} s with start and stop"
    report.add(Figure(what, "transactions/s", [asked], [1.0], "the limit", 1.0, "less"))


def _transactions(wire: Wire) -> int:
    return int(
        wire.value("select xact_commit + xact_rollback from pg_stat_database where datname = current_database()")
    )
