"""``report``: the fairness report of a history, made in this process or by Spark."""

# Annotations are read when the program starts, so that they must not be postponed.
import contextlib
import csv
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from sqlalchemy_fairqueue.cli.errors import CommandError, ExitStatus, not_found_error, usage_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Options, option_parser
from sqlalchemy_fairqueue.cli.progress import steps
from sqlalchemy_fairqueue.cli.results import Result
from sqlalchemy_fairqueue.cli.spark.report_engine import report_by_spark
from sqlalchemy_fairqueue.cli.spark.scenarios import scenarios_in
from sqlalchemy_fairqueue.cli.tables import Column, number_column, text_table
from sqlalchemy_fairqueue.cli.target import names_database
from sqlalchemy_fairqueue.formats import parse_duration
from sqlalchemy_fairqueue.reporting.documents import document_of
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, HistoryTooLong, HistoryUnreadable
from sqlalchemy_fairqueue.reporting.objectives import Objective
from sqlalchemy_fairqueue.reporting.replays import Advice
from sqlalchemy_fairqueue.reporting.reports import Report
from sqlalchemy_fairqueue.simulation.scenarios import Scenario
from sqlalchemy_fairqueue.times import earlier

_ENGINES = ("local", "spark")
_SCENARIOS = {
    "fifo": Scenario(name="fifo", discipline="fifo"), "fair": Scenario(name="fair"),
    "by-cost": Scenario(name="by cost", fair_by="cost"), "by-seconds": Scenario(name="by seconds", fair_by="seconds"),
}  # fmt: skip
_MAX_CHANNELS = 10
_COLUMNS = (
    Column("queue"), Column("channel"), number_column("attempts"), number_column("denied wait"),
    number_column("mean wait"), number_column("p95 wait"), Column("because of"),
)  # fmt: skip


_Times = tuple[datetime | None, datetime | None]


def _instant(text: str) -> datetime:
    try:
        return earlier(datetime.now(UTC), parse_duration(text))
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r:.80} is no time; give one like 2026-11-21T14:30:00Z, or 7d for 7 days ago") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def make_report(
    options: Options,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The file of the page. Default: fairness.html, with --json no page.",
            show_default=False,
        ),
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            "--scenario",
            metavar="NAME",
            help="fifo, fair, by-cost, by-seconds, or a TOML file of scenarios to replay beside the record; can be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    objective: Annotated[
        Objective | None,
        typer.Option(
            "--slo",
            parser=option_parser(Objective.parse),
            metavar="TEXT",
            help="A target for each tenant's wait, like 'p95 < 2 s'; status 1 where one misses it.",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            metavar="ENGINE",
            help="local or spark. Default: local up to 20 million attempts.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            parser=option_parser(_instant),
            metavar="TIME",
            help="Only attempts that ended since then: an instant, or a duration before now.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--until", parser=option_parser(_instant), metavar="TIME", help="Only attempts that ended before."
        ),
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            "--archive", metavar="PATH", help="An archive, instead of the history in the database.", show_default=False
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option("--labels", metavar="FILE", help="A CSV file of channels and the names to show instead."),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(
            "--label-column",
            metavar="NAME",
            help="A column of the archive with the names to show instead.",
            show_default=False,
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            metavar="CHANNEL",
            help="A page about this channel alone, on one sheet, which names no other.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="Its title.")] = "Fairness report",
    window: Annotated[
        timedelta | None,
        typer.Option(
            "--window", parser=option_parser(parse_duration), metavar="DURATION", help="Width of the windows over time."
        ),
    ] = None,
) -> Result:
    """Make a fairness report: who waited, because of whom, and what to set, as an HTML page.

    The history is that of the database, or an archive. Without --queue it is of all queues.
    """
    if engine is not None and engine not in _ENGINES:
        raise usage_error(f"--engine {engine!r} is none of {', '.join(_ENGINES)}")
    if output is None and not options.json:
        output = Path("fairness.html")
    if output is not None and (not output.parent.is_dir() or output.is_dir()):
        raise usage_error(f"--out {str(output)!r} cannot be written; name a file in a folder that is there")
    if label_column is not None and (archive is None or labels is not None):
        raise usage_error("--label-column names a column of an --archive, and goes without --labels")
    wanted = _scenarios(scenario or ())
    arguments: dict[str, Any] = {
        "scenarios": wanted, "output": output, "title": title, "window": window, "objective": objective,
        "labels": label_column or _labels(labels), "tenant": tenant,
    }  # fmt: skip
    try:
        made = _made(engine, options, archive, (since, until), arguments)
    except HistoryEmpty as error:
        raise not_found_error(str(error)) from error
    except HistoryUnreadable as error:
        raise CommandError(str(error), ExitStatus.REFUSED, "refused") from error
    return _result(made)


def _scenarios(names: "tuple[str, ...] | list[str]") -> list[Scenario]:
    found: list[Scenario] = []
    for name in names:
        if name in _SCENARIOS:
            found.append(_SCENARIOS[name])
        elif name.endswith(".toml"):
            found += scenarios_in(Path(name))
        else:
            raise usage_error(f"--scenario {name!r} is none of {', '.join(_SCENARIOS)}, and no .toml file")
    return found


def _labels(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise not_found_error(f"the labels in {str(path)!r} cannot be read: {error}") from error
    wrong = next((number for number, row in enumerate(rows, 1) if row and len(row) != 2), None)  # noqa: PLR2004 - a pair
    if wrong is not None:
        raise usage_error(f"row {wrong} of the labels in {str(path)!r} is no pair; give channel,name")
    found = {row[0]: row[1] for row in rows if row}
    if len(set(found.values())) < len(found):
        raise usage_error(f"two channels have one name in the labels in {str(path)!r}; give each a name of its own")
    return found


def _made(
    engine: str | None, options: Options, archive: str | None, times: _Times, arguments: dict[str, Any]
) -> Report:
    """The report by the engine, or by the one that the size of the history asks for."""
    if engine != "spark":
        try:
            return _in_process(options, archive, times, arguments)
        except HistoryTooLong:
            if engine is not None:
                raise
    return report_by_spark(options, archive, times, arguments)


def _in_process(options: Options, archive: str | None, times: _Times, arguments: dict[str, Any]) -> Report:
    since, until = times
    try:
        import jinja2  # noqa: F401 - a missing one is reported before anything is read
        import matplotlib as mpl  # noqa: F401

        from sqlalchemy_fairqueue.reporting.history import (
            read_archive,
            read_history,
            read_plans,
            read_policies,
            read_settings,
        )
        from sqlalchemy_fairqueue.reporting.process_report import report
    except ImportError as error:
        raise usage_error(f"a report cannot be made: {error}; pip install 'sqlalchemy-fairqueue[report]'") from error
    with steps() as step:
        step("reading the history", 0, 0)
        with contextlib.ExitStack() as stack:
            installation, policies, settings, plans, queue = None, None, None, None, options.queue
            if archive is None or names_database(options):
                installation = stack.enter_context(open_installation(options))
                queue = queue or installation.target.queue
            if archive is None:
                assert installation is not None  # noqa: S101 - without an archive there is one
                history = read_history(
                    installation.engine, queue=queue, schema=installation.schema, since=since, until=until
                )
            else:
                if installation is not None:
                    policies = read_policies(installation.engine, queue=queue, schema=installation.schema)
                    settings = read_settings(installation.engine, queue=queue, schema=installation.schema)
                    plans = read_plans(installation.engine, queue=queue, schema=installation.schema)
                history = read_archive(
                    archive, queue=queue, since=since, until=until, policies=policies, settings=settings, plans=plans,
                    label=arguments["labels"] if isinstance(arguments["labels"], str) else None,
                )  # fmt: skip
        return report(history, **arguments, progress=step)


def _result(report: Report) -> Result:
    channels, late = report.figures.channels, report.late
    rows = [
        (one.queue, one.channel, one.attempts, one.denied_wait, one.mean_wait, one.wait.p95,
         ", ".join(culprit.channel for culprit in one.denial.culprits) if one.denial else None)
        for one in channels[:_MAX_CHANNELS]
    ]  # fmt: skip
    return Result(
        {
            "output": None if report.path is None else str(report.path),
            "title": report.title,
            "made_at": report.made_at,
            "slo": None if report.objective is None else f"{report.objective}",
            "late": [{"queue": one.queue, "channel": one.channel} for one in late],
            "queues": [document_of(one) for one in report.figures.queues],
            "channels": [document_of(one) for one in channels],
            "plans": [document_of(one) for one in report.figures.plans],
            "advice": [document_of(one) for one in report.advice],
            "replays": [
                {
                    "scenario": one.name,
                    "queues": [document_of(queue) for queue in one.queues],
                    "channels": [document_of(channel) for channel in one.channels],
                    "replayed": [document_of(queue) | {"trusted": queue.trusted} for queue in one.replayed],
                }
                for one in report.replays
            ],
        },
        (
            Text("channels by denied wait"), text_table(_COLUMNS, rows), *map(Text, _words(report)),
            Text(f"the report is in {report.path}"),
        ),
        ExitStatus.FOUND if late else ExitStatus.OK,
    )  # fmt: skip


def _subject(advice: Advice) -> str:
    return f"channel {advice.channel!r}" if advice.plan is None else f"plan {advice.plan!r}"


def _words(report: Report) -> list[str]:
    found = []
    if report.objective is not None:
        late = report.late
        if late:
            found.append(f"{len(late)} of {len(report.figures.channels)} channels miss {report.objective}")
        else:
            found.append(f"all channels keep {report.objective}")
    found += [
        f"do not trust the forecasts of queue {one.queue!r}: a replay of what was differs from the record by "
        f"{one.replay_error:.0%}; the page says why"
        for replay in report.replays
        for one in replay.replayed
        if not one.trusted
    ]
    found += [
        f"set max_concurrency={one.max_concurrency} for {_subject(one)} of queue {one.queue!r}: by a replay, "
        f"the others then wait {one.after.total_seconds():.2f} s on average instead of "
        f"{one.before.total_seconds():.2f} s"
        for one in report.advice
        if one.max_concurrency is not None and one.after is not None
    ]
    return found
