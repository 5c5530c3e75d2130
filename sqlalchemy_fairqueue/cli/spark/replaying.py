"""``spark replay``: what would have been under other policies, beside what was."""

# Annotations are read when the program starts, so that they must not be postponed.
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.answers import Answer
from sqlalchemy_fairqueue.cli.failures import not_found, usage
from sqlalchemy_fairqueue.cli.options import Options, typed
from sqlalchemy_fairqueue.cli.spark.histories import Archive, history_of
from sqlalchemy_fairqueue.cli.spark.scenarios import scenarios_in
from sqlalchemy_fairqueue.cli.spark.sessions import Conf, progress, spark_session
from sqlalchemy_fairqueue.cli.tables import Column, listing, number
from sqlalchemy_fairqueue.cli.units import duration
from sqlalchemy_fairqueue.spark.replaying.scenarios import RECORDED
from sqlalchemy_fairqueue.spark.reporting.attempts import HistoryEmpty
from sqlalchemy_fairqueue.spark.reporting.figures import Report, document_of

_COLUMNS = (
    Column("queue"), Column("scenario"), number("fairness"), number("median wait"), number("p95 wait"),
    number("longest wait"),
)  # fmt: skip


def replay_history(
    options: Options,
    *,
    scenarios: Annotated[
        Path, typer.Argument(metavar="SCENARIOS", help="A TOML file with a table [[scenario]] for each.")
    ],
    archive: Archive = None,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="Where to write the page.")] = Path(
        "replay.html"
    ),
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Its title.")] = "What if",
    window: Annotated[
        timedelta | None,
        typer.Option("--window", parser=typed(duration), metavar="DURATION", help="Width of the windows over time."),
    ] = None,
    conf: Conf = None,
) -> Answer:
    """Replay a history under other policies: the fairness report, with what would have been beside what was.

    The history is that of the database, or an archive. Without --queue it is of all queues.
    """
    wanted = scenarios_in(scenarios)
    if not output.parent.is_dir() or output.is_dir():
        raise usage(f"--output {str(output)!r} cannot be written; name a file in a folder that is there")
    with spark_session("replay", conf) as spark, history_of(spark, options, archive) as (history, policies):
        from pyspark import StorageLevel  # noqa: PLC0415 - as late as Spark

        from sqlalchemy_fairqueue.spark.replaying.frames import replays  # noqa: PLC0415
        from sqlalchemy_fairqueue.spark.reporting import report  # noqa: PLC0415

        # What was and what would have been are of the same rows, however the history grows.
        kept = history.persist(StorageLevel.DISK_ONLY)
        try:
            with progress("replaying the history"):
                replayed = replays(kept, wanted, window=window)
            with progress("going through the history"):
                made = report(kept, policies=policies, output=output, title=title, replays=replayed, window=window)
        except HistoryEmpty as error:
            raise not_found(str(error)) from error
    return _answer(made)


def _answer(made: Report) -> Answer:
    named = [(RECORDED, made.figures.queues), *((one.name, one.queues) for one in made.replays)]
    rows: list[tuple[Any, ...]] = [
        (queue.queue, name, None if queue.fairness is None else f"{queue.fairness:.3f}", queue.wait.p50,
         queue.wait.p95, queue.wait.max)
        for place, _ in enumerate(made.figures.queues) for name, queues in named for queue in queues[place : place + 1]
    ]  # fmt: skip
    return Answer(
        {
            "output": str(made.path),
            "title": made.title,
            "made_at": made.made_at,
            "scenarios": [
                {"scenario": name, "queues": [document_of(one, without=("windows",)) for one in queues]}
                for name, queues in named
            ],
        },
        (listing(_COLUMNS, rows), Text(f"the report is in {made.path}")),
    )
