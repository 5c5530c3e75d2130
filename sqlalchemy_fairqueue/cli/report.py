"""``report``: the fairness report of a history, made in this process or by Spark; scenarios of a replay."""

# No ``from __future__ import annotations``: the program reads the annotations when it starts.
import contextlib
import csv
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from sqlalchemy_fairqueue.cli.errors import ExitStatus, not_found_error, refused_error, usage_error
from sqlalchemy_fairqueue.cli.installation import open_installation
from sqlalchemy_fairqueue.cli.options import Conf, Options, Read, Spec
from sqlalchemy_fairqueue.cli.output import Result, steps
from sqlalchemy_fairqueue.cli.tables import Column, Table, number_column, text_table
from sqlalchemy_fairqueue.cli.target import names_database
from sqlalchemy_fairqueue.errors import InvalidArgument
from sqlalchemy_fairqueue.formats import parse_duration
from sqlalchemy_fairqueue.reporting.errors import HistoryEmpty, HistoryTooLong, HistoryUnreadable
from sqlalchemy_fairqueue.reporting.reports import Advice, Objective, ReplayedQueue, Report, document_of
from sqlalchemy_fairqueue.reporting.simulation.scenarios import RECORDED, Scenario, check_scenarios
from sqlalchemy_fairqueue.times import earlier
from sqlalchemy_fairqueue.values.policies import ChannelPolicy

_ENGINES = ("local", "spark")
_SCENARIOS = {
    "fifo": Scenario(name="fifo", discipline="fifo"), "fair": Scenario(name="fair"),
    "by-cost": Scenario(name="by cost", fair_by="cost"), "by-seconds": Scenario(name="by seconds", fair_by="seconds"),
}  # fmt: skip
_MAX_CHANNELS = 10
_CHANNELS = Table(
    Column("queue"), Column("channel"), number_column("attempts"), number_column("denied wait"),
    number_column("mean wait"), number_column("p95 wait", get=lambda one: one.wait.p95),
    Column(
        "because of",
        get=lambda one: ", ".join(culprit.channel for culprit in one.denial.culprits) if one.denial else None,
    ),
)  # fmt: skip
_REPLAYED = (
    Column("queue"), Column("scenario"), number_column("at once"), number_column("error"), number_column("fairness"),
    number_column("median wait"), number_column("p95 wait"), number_column("longest wait"),
)  # fmt: skip


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
    out: Path | None = None,
    scenario: list[str] | None = None,
    slo: Annotated[Objective | None, Spec(metavar="TEXT", parse=Objective.parse)] = None,
    engine: Annotated[str | None, Spec(metavar="ENGINE")] = None,
    since: Annotated[datetime | None, Spec(metavar="TIME", parse=_instant)] = None,
    until: Annotated[datetime | None, Spec(metavar="TIME", parse=_instant)] = None,
    archive: Annotated[str | None, Spec(metavar="PATH")] = None,
    labels: Path | None = None,
    label_column: str | None = None,
    tenant: Annotated[str | None, Spec(metavar="CHANNEL")] = None,
    title: Annotated[str, Spec(metavar="TEXT")] = "Fairness report",
    window: timedelta | None = None,
    conf: Conf = None,
) -> Result:
    """Make a fairness report: who waited, because of whom, and what to set, as an HTML page.

    The report is about --queue, else the application's queue, else all queues, from the database or an archive.

    Options:
        out: The file of the page. Default: fairness.html, with --json no page.
        scenario: fifo, fair, by-cost, by-seconds, or a TOML file of scenarios. The report compares a replay of each
            scenario with the history. Can be repeated.
        slo: A target for each tenant's wait, like 'p95 < 2 s'; exit status 1 if a tenant misses it.
        engine: local or spark. Default: local up to 20 million attempts.
        since: Only attempts that ended since then: an instant, or a duration before now.
        until: Only attempts that ended before then.
        archive: An archive, instead of the history in the database.
        labels: A CSV file of channels and the names to show instead.
        label_column: A column of the archive with the names to show instead.
        tenant: A page about this channel alone, on one sheet, which names no other.
        title: The title of the page.
        window: Width of the windows by which the page shows figures over time.
    """
    if engine not in {None, *_ENGINES}:
        raise usage_error(f"--engine {engine!r} is none of {', '.join(_ENGINES)}")
    if out is None and not options.json:
        out = Path("fairness.html")
    if out is not None and (not out.parent.is_dir() or out.is_dir()):
        raise usage_error(f"--out {str(out)!r} cannot be written; name a file in a folder that is there")
    if label_column is not None and (archive is None or labels is not None):
        raise usage_error("--label-column names a column of an --archive, and goes without --labels")
    if window is not None and not window:
        raise usage_error("--window is 0; give a width such as 5m")
    wanted = _scenarios(scenario or ())
    arguments: dict[str, Any] = {
        "scenarios": wanted, "output": out, "title": title, "window": window, "objective": slo,
        "labels": label_column or _labels(labels), "tenant": tenant,
    }  # fmt: skip
    try:
        made = _made(engine, options, (archive, since, until), arguments, conf)
    except HistoryEmpty as error:
        raise not_found_error(str(error)) from error
    except HistoryUnreadable as error:
        raise refused_error(str(error)) from error
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
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
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
    engine: str | None, options: Options, read: Read, arguments: dict[str, Any], conf: list[str] | None
) -> Report:
    if engine != "spark":
        try:
            return _in_process(options, read, arguments)
        except HistoryTooLong:
            if engine is not None:
                raise
    from sqlalchemy_fairqueue.cli.spark import report_by_spark

    return report_by_spark(options, read, arguments, conf)


def _in_process(options: Options, read: Read, arguments: dict[str, Any]) -> Report:
    archive, since, until = read
    try:
        import jinja2  # noqa: F401 - a missing one is reported before anything is read

        from sqlalchemy_fairqueue.reporting.history import (
            read_archive,
            read_history,
            read_plans,
            read_policies,
            read_settings,
        )
        from sqlalchemy_fairqueue.reporting.making import report
    except ImportError as error:
        raise usage_error(f"a report cannot be made: {error}; pip install 'sqlalchemy-fairqueue[report]'") from error
    with steps() as step:
        step("reading the history", 0, 0)
        with contextlib.ExitStack() as stack:
            installation, queue = None, options.queue
            if archive is None or names_database(options):
                installation = stack.enter_context(open_installation(options))
                queue = installation.target.queue
            if archive is None:
                assert installation is not None  # noqa: S101 - without an archive there is one
                history = read_history(
                    installation.engine, queue=queue, schema=installation.schema, since=since, until=until
                )
            else:
                reads = {"policies": read_policies, "settings": read_settings, "plans": read_plans}
                now: dict[str, Any] = {
                    name: read_now(installation.engine, queue=queue, schema=installation.schema)
                    for name, read_now in reads.items()
                    if installation is not None
                }
                label = arguments["labels"] if isinstance(arguments["labels"], str) else None
                history = read_archive(archive, queue=queue, since=since, until=until, label=label, **now)
        return report(history, **arguments, progress=step)


def _result(report: Report) -> Result:
    channels, late = report.figures.channels, report.late
    document = {
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
    }
    parts: list[Any] = ["channels by denied wait", _CHANNELS.screen(channels[:_MAX_CHANNELS])]
    if report.replays:
        parts += ["scenarios", text_table(_REPLAYED, _replayed(report))]
    parts += [*_words(report), f"the report is in {report.path}"]
    return Result(document, tuple(parts), ExitStatus.FOUND if late else ExitStatus.OK)


def _replayed(report: Report) -> list[tuple[Any, ...]]:
    named = [(RECORDED, report.figures.queues, ()), *((one.name, one.queues, one.replayed) for one in report.replays)]
    assumed = {(name, one.queue): one for name, _, replayed in named for one in replayed}
    return [
        (queue.queue, name, *_assumed(assumed.get((name, queue.queue))),
         None if queue.fairness is None else f"{queue.fairness:.3f}", queue.wait.p50, queue.wait.p95, queue.wait.max)
        for index, _ in enumerate(report.figures.queues) for name, queues, _ in named
        for queue in queues[index : index + 1]
    ]  # fmt: skip


def _assumed(one: ReplayedQueue | None) -> tuple[str | None, str | None]:
    if one is None:
        return None, None
    return f"{one.workers:.1f}", None if one.replay_error is None else f"{one.replay_error:.0%}"


def _subject(advice: Advice) -> str:
    return f"channel {advice.channel!r}" if advice.plan is None else f"plan {advice.plan!r}"


def _words(report: Report) -> list[str]:
    found = []
    if report.objective is not None:
        late = f"{len(report.late)} of {len(report.figures.channels)} channels miss"
        found.append(f"{late if report.late else 'all channels keep'} {report.objective}")
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


_SCENARIO_FIELDS = ("name", "discipline", "fair_by", "workers", "batch", "max_concurrency", "defaults", "policies")
_POLICY_FIELDS = ("max_concurrency", "rate", "weight")


def scenarios_in(path: Path) -> list[Scenario]:
    """Return the scenarios of a TOML file, which has a table ``[[scenario]]`` for each.

    The table has the attributes of a Scenario. A policy in it may have ``weight``, ``max_concurrency`` and ``rate``. A
    rate is text, as on the command line: ``rate = "10/s"``. Raise CommandError if the file cannot be used.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise not_found_error(f"the scenarios in {str(path)!r} cannot be read: {error}") from error
    try:
        document = tomllib.loads(text)
        _check_names("the file", document, ("scenario",))
        tables = document.get("scenario", [])
        if not isinstance(tables, list):
            raise ValueError(f"scenario is {tables!r:.80}; give a table [[scenario]] for each")  # noqa: TRY004, TRY301
        found = [_scenario(f"scenario {number}", one) for number, one in enumerate(tables, start=1)]
        check_scenarios(found)
    except (tomllib.TOMLDecodeError, InvalidArgument, ValueError) as error:
        raise usage_error(f"the scenarios in {str(path)!r} cannot be replayed: {error}") from error
    return found


def _scenario(where: str, given: Any) -> Scenario:
    _check_names(where, given, _SCENARIO_FIELDS)
    if "name" not in given:
        raise ValueError(f"{where} has no name; give it one")
    values = dict(given)
    if "defaults" in values:
        values["defaults"] = _policy(f"defaults of {where}", values["defaults"])
    policies = values.get("policies", {})
    if not isinstance(policies, dict):
        raise ValueError(f"policies of {where} is {policies!r:.80}; give a table with a policy a channel")  # noqa: TRY004 - the file is wrong
    values["policies"] = {name: _policy(f"policy {name!r} of {where}", one) for name, one in policies.items()}
    return Scenario(**values)


def _policy(where: str, given: Any) -> ChannelPolicy:
    _check_names(where, given, _POLICY_FIELDS)
    return ChannelPolicy(**given)


def _check_names(where: str, given: Any, known: tuple[str, ...]) -> None:
    if not isinstance(given, dict):
        raise ValueError(f"{where} is {given!r:.80}; give a table with {', '.join(known)}")  # noqa: TRY004 - the file is wrong
    unknown = [name for name in given if name not in known]
    if unknown:
        raise ValueError(f"{where} has {unknown[0]!r}; it may have {', '.join(known)}")
