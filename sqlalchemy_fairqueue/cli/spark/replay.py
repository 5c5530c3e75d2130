"""``spark replay``: a history replayed under other policies, compared with what happened."""

# Annotations are read when the program starts, so that they must not be postponed.
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.errors import not_found_error, usage_error
from sqlalchemy_fairqueue.cli.options import Options, option_parser
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.spark.history import Archive, history_of, settings_of
from sqlalchemy_fairqueue.cli.spark.scenarios import scenarios_in
from sqlalchemy_fairqueue.cli.spark.session import Conf, progress, spark_session
from sqlalchemy_fairqueue.cli.tables import Column, number_column, text_table
from sqlalchemy_fairqueue.formats import parse_duration
from sqlalchemy_fairqueue.reporting.documents import document_of
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty
from sqlalchemy_fairqueue.reporting.replays import ReplayedQueue
from sqlalchemy_fairqueue.reporting.reports import Report
from sqlalchemy_fairqueue.simulation.scenarios import RECORDED

_COLUMNS = (
    Column("queue"), Column("scenario"), number_column("at once"), number_column("error"), number_column("fairness"),
    number_column("median wait"), number_column("p95 wait"), number_column("longest wait"),
)  # fmt: skip


def replay_history(
    options: Options,
    *,
    scenarios: Annotated[
        Path, typer.Argument(metavar="SCENARIOS", help="A TOML file with a table [[scenario]] for each.")
    ],
    archive: Archive = None,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="The file of the page.")] = Path(
        "replay.html"
    ),
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Its title.")] = "What if",
    window: Annotated[
        timedelta | None,
        typer.Option(
            "--window", parser=option_parser(parse_duration), metavar="DURATION", help="Width of the windows over time."
        ),
    ] = None,
    conf: Conf = None,
) -> Result:
    """Replay a history under other policies: the fairness report, with the scenarios beside what happened.

    The history is that of the database, or an archive. Without --queue it is of all queues.
    """
    wanted = scenarios_in(scenarios)
    if not output.parent.is_dir() or output.is_dir():
        raise usage_error(f"--output {str(output)!r} cannot be written; name a file in a folder that is there")
    with spark_session("replay", conf) as spark, history_of(spark, options, archive) as (history, policies):
        from pyspark import StorageLevel

        from sqlalchemy_fairqueue.spark.replaying import replays
        from sqlalchemy_fairqueue.spark.reporting import report

        # The report and the replays are of the same rows, also while the history grows.
        kept = history.persist(StorageLevel.DISK_ONLY)
        try:
            with progress("replaying the history"):
                settings = settings_of(options, archive)
                replayed = replays(kept, wanted, policies=policies, settings=settings, window=window)
            with progress("going through the history"):
                made = report(kept, policies=policies, output=output, title=title, replays=replayed, window=window)
        except HistoryEmpty as error:
            raise not_found_error(str(error)) from error
    return _result(made)


def _result(report: Report) -> Result:
    named = [(RECORDED, report.figures.queues, ()), *((one.name, one.queues, one.replayed) for one in report.replays)]
    assumed = {(name, one.queue): one for name, _, replayed in named for one in replayed}
    rows: list[tuple[Any, ...]] = [
        (queue.queue, name, *_assumed(assumed.get((name, queue.queue))),
         None if queue.fairness is None else f"{queue.fairness:.3f}", queue.wait.p50, queue.wait.p95, queue.wait.max)
        for index, _ in enumerate(report.figures.queues) for name, queues, _ in named
        for queue in queues[index : index + 1]
    ]  # fmt: skip
    doubted = [
        Text(
            f"do not trust the forecasts of queue {one.queue!r}: a replay of what was differs from the record by "
            f"{one.replay_error:.0%}; the page says why",
            style="red",
        )
        for one in assumed.values()
        if not one.trusted
    ]
    return Result(
        {
            "output": str(report.path),
            "title": report.title,
            "made_at": report.made_at,
            "scenarios": [
                {
                    "scenario": name,
                    "queues": [document_of(one, without=("windows",)) for one in queues],
                    "replayed": [document_of(one) | {"trusted": one.trusted} for one in replayed],
                }
                for name, queues, replayed in named
            ],
        },
        (text_table(_COLUMNS, rows), *doubted, Text(f"the report is in {report.path}")),
    )


def _assumed(one: ReplayedQueue | None) -> tuple[str | None, str | None]:
    if one is None:
        return None, None
    return f"{one.workers:.1f}", None if one.replay_error is None else f"{one.replay_error:.0%}"
