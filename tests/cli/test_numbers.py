"""Numbers and times of the command line: what is none, or more than PostgreSQL keeps, is refused in a line."""

import pytest
from sqlalchemy import Engine

from tests.cli.conftest import Cli
from tests.cli.messages import enqueue

_COUNTS = (
    "channels --limit", "messages list --limit", "dead list --limit", "groups list --limit", "schedules list --limit",
    "top --once --limit", "top --count", "cancel", "messages show", "messages retry", "messages move", "dead show",
    "dead redrive", "dead list --after", "configure queue --max-concurrency", "configure queue --channel-weight",
    "configure channel a --weight", "configure channel a --max-concurrency", "configure channel a --max-backlog",
    "configure limit shared --max-concurrency", "configure plan free --weight", "configure plan free --max-backlog",
    "schedules set nightly --channel a --payload 1 --every 1h --priority",
    "schedules set nightly --channel a --payload 1 --every 1h --max-attempts", "dashboard --port", "metrics --http",
    "worker no:queue --concurrency", "worker no:queue --prefetch", "worker no:queue --max-bytes", "report --top",
)  # fmt: skip
_NO_COUNTS = ("", "9" * 5_000, "-1", "1.5", "1e5", "inf", "nan", "\u00b2", "0x10", "1 000")
_RATES = ("configure channel a --rate", "configure queue --rate", "configure limit shared --rate")
_NO_RATES = ("", "9" * 5_000 + "/s", "1/s, burst " + "9" * 5_000, f"0.{'0' * 400}1/s", "inf/s", "nan/s", "-1/s", "1/0s")
_DURATIONS = (
    "configure channel a --priority-aging", "configure queue --history-retention", "top --interval", "doctor --max-age",
    "schedules set nightly --channel a --payload 1 --every", "dead purge --yes --older-than", "report --since",
    "history prune --older-than", "worker no:queue --lease", "worker no:queue --grace", "report --until",
    "dead list --since",
)  # fmt: skip
_NO_DURATIONS = ("", "9" * 5_000 + "s", "-1s", "inf", "nan", "\u0661s", "1e5s", "1_000s")


@pytest.mark.parametrize(
    ("lines", "values"),
    [(_COUNTS, _NO_COUNTS), (_RATES, _NO_RATES), (_DURATIONS, _NO_DURATIONS)],
    ids=["counts", "rates", "durations"],
)
def test_no_numbers(cli: Cli, engine: Engine, lines: tuple[str, ...], values: tuple[str, ...]) -> None:
    """Each is a command line that cannot be used, or names nothing, and the document says so."""
    enqueue(engine, "a")
    for line in lines:
        for value in values:
            more = ["b"] if line == "messages move" else []
            found = cli(*line.split(), value, *more, "--json")
            assert (found.status, found.error["kind"]) in {(2, "usage"), (1, "not_found")}, (line, value, found.err)


def test_times_before_the_calendar(cli: Cli, engine: Engine) -> None:
    """A time that is longer ago than the year 1 is before all that there is."""
    enqueue(engine, "a")
    for line in ("dead list --since", "dead purge --yes --older-than", "report --since"):
        found = cli(*line.split(), "99999999d")
        assert found.status in {0, 1}, found.err


def test_no_schemas(cli: Cli) -> None:
    """A schema that cannot be there is not asked for."""
    for schema in ("\x00", "\udcff", "x" * 5_000):
        assert cli("stats", "--schema", schema, "--json").error["kind"] in {"usage", "schema_missing"}
