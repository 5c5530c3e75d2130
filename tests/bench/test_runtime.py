"""The runtime: throughput of a worker, from commit to handler, wake-ups, history, idleness."""

from __future__ import annotations

from statistics import quantiles
from typing import TYPE_CHECKING

from tests.bench.figures import Figure, each_once, rate, total
from tests.bench.loads import Consuming, Producing, consumers, drain, producers
from tests.bench.processes import Task, send_out
from tests.bench.python_loads import Load, enqueue_now_and_then, loops, work, work_for_a_while
from tests.bench.wire import Wire

if TYPE_CHECKING:
    from tests.bench.conftest import Alternate
    from tests.bench.figures import Report
    from tests.bench.processes import Watch
    from tests.bench.stage import Stage

_PRODUCERS = 8


def _url(conninfo: str) -> str:
    return conninfo.replace("postgresql://", "postgresql+psycopg://", 1)


def test_worker_beside_loops(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """A worker of four threads gets through a no-op handler at 0.7 of the speed of four loops that do nothing else."""
    messages = 100_000 if full else 20_000
    filled = stage.fill("fair", channels=1_000, messages=messages)
    rates: dict[str, list[float]] = {"worker": [], "loops": []}

    def measure(side: str) -> None:
        with stage.clone(filled) as conninfo:
            job = Load(_url(conninfo), threads=4, enough=messages)
            watches = send_out([Task(work if side == "worker" else loops, (job,))])
        each_once(watches, messages=messages)
        rates[side].append(rate(watches))

    alternate(measure, ("worker", "loops"))
    stage.drop(filled)
    report.add(
        Figure(
            f"end to end through Worker, no-op handler, 4 threads, 1,000 channels, {messages:,} messages",
            "messages/s",
            rates["worker"],
            rates["loops"],
            "4 threads that dequeue and complete batches of 100",
            reach=0.7,
        )
    )


def test_from_commit_to_handler(stage: Stage, report: Report, *, full: bool) -> None:
    """On an idle queue a message's handler starts within milliseconds of the commit, or of the next poll."""
    count = 600 if full else 150
    filled = stage.fill("fair", channels=1, messages=0)
    polling = 0.2
    waits: dict[bool, list[float]] = {}
    for notify in (True, False):
        with stage.clone(filled) as conninfo:
            job = Load(_url(conninfo), enough=count, notify=notify, poll_interval=5.0 if notify else polling)
            worker = Load(job.url, enough=count, notify=notify, poll_interval=job.poll_interval, seconds=120.0)
            producer = Load(job.url, enough=count, seconds=0.05)
            done, made = send_out([Task(work_for_a_while, (worker,)), Task(enqueue_now_and_then, (producer,))])
        each_once([done], messages=count)
        waits[notify] = _waits(made, done)
    stage.drop(filled)
    for notify, reach in ((True, (0.005, 0.025)), (False, (polling, polling))):
        *_, last = cuts = quantiles(waits[notify], n=100)
        name = "with notify" if notify else f"polling every {polling} s"
        for what, value, limit in (("median", cuts[49], reach[0]), ("99th percentile", last, reach[1])):
            report.add(
                Figure(
                    f"from commit to handler on an idle queue, {name}, {what} of {count}",
                    "ms",
                    [1e3 * value],
                    [1e3 * limit],
                    "the limit",
                    reach=1.0,
                    better="less",
                )
            )


def _waits(made: Watch, done: Watch) -> list[float]:
    committed = dict(zip(made.ids, made.ended, strict=True))
    return [started - committed[message] for message, started in zip(done.ids, done.ended, strict=True)]


def test_commits_with_and_without_wake_ups(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """Producers commit as often whether their consumers are woken by notifications or poll."""
    seconds = 20.0 if full else 4.0
    filled = stage.fill("fair", channels=1, messages=0)
    rates: dict[str, list[float]] = {"notify": [], "polling": []}

    def measure(side: str) -> None:
        with stage.clone(filled) as conninfo:
            job = Load(_url(conninfo), notify=side == "notify", poll_interval=0.2, seconds=seconds)
            tasks = [Task(work_for_a_while, (job,))]
            tasks += producers(_PRODUCERS, Producing("fair_notifying", conninfo, 0.0, seconds))
            _, *made = send_out(tasks)
        rates[side].append(total(made) / seconds)

    alternate(measure, ("notify", "polling"))
    stage.drop(filled)
    report.add(
        Figure(
            f"commits of {_PRODUCERS} producers beside a worker that is woken",
            "transactions/s",
            rates["notify"],
            rates["polling"],
            "a worker that polls",
            reach=0.9,
        )
    )


def test_history_on_and_off(stage: Stage, report: Report, alternate: Alternate, *, full: bool) -> None:
    """Writing a row of history for each message leaves three quarters of the throughput."""
    messages = 200_000 if full else 50_000
    filled = stage.fill("fair", channels=1_000, messages=messages)
    rates: dict[str, list[float]] = {"on": [], "off": []}

    def measure(side: str) -> None:
        with stage.clone(filled) as conninfo:
            if side == "on":
                wire = Wire(conninfo)
                wire.run("select fairqueue.fq_record_queue('bench', true, null); select fairqueue.fq_keep_history()")
                wire.close()
            watches = send_out(consumers(2, drain, Consuming("fair", conninfo, limit=100)))
            wire = Wire(conninfo)
            written = int(wire.value("select count(*) from fairqueue.fq_history"))
            wire.close()
        each_once(watches, messages=messages)
        assert written == (messages if side == "on" else 0)
        rates[side].append(rate(watches))

    alternate(measure, ("on", "off"))
    stage.drop(filled)
    report.add(
        Figure(
            f"history on, batch 100, 1,000 channels, {messages:,} messages, 2 consumers",
            "messages/s",
            rates["on"],
            rates["off"],
            "history off",
            reach=0.75,
        )
    )


def test_an_idle_worker(stage: Stage, report: Report, *, full: bool) -> None:
    """A worker that has nothing to do asks the database less than once a second."""
    seconds = 120.0 if full else 30.0
    filled = stage.fill("fair", channels=1, messages=0)
    with stage.clone(filled) as conninfo:
        wire = Wire(conninfo)
        before = _transactions(wire)
        send_out([Task(work_for_a_while, (Load(_url(conninfo), enough=1, seconds=seconds),))])
        asked = (_transactions(wire) - before) / seconds
        wire.close()
    stage.drop(filled)
    report.add(
        Figure(
            f"an idle worker with notify, over {seconds:.0f} s, start and stop included",
            "transactions/s",
            [asked],
            [1.0],
            "the limit",
            reach=1.0,
            better="less",
        )
    )


def _transactions(wire: Wire) -> int:
    return int(
        wire.value("select xact_commit + xact_rollback from pg_stat_database where datname = current_database()")
    )
