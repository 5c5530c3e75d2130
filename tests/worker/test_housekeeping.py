"""The chores of workers."""

import logging

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue.worker import housekeeping
from sqlalchemy_fairqueue.worker.housekeeping import Housekeeping
from tests.fixtures.database import Database
from tests.worker.helpers import until

_DAYS = "select count(*) from pg_class where relname like 'fq_history_p2%'"


def test_partitions_are_made_ahead(engine: Engine, database: Database) -> None:
    """Housekeeping makes the partitions of the next days, and does no harm when it is done again."""
    before = database.value(_DAYS)
    chores = Housekeeping(engine, [None], "me", first=0.0)
    chores.run()
    made = database.value(_DAYS)
    assert made >= 8 > before
    chores.run()
    assert database.value(_DAYS) == made


def test_a_turn_is_taken_when_it_is_due(engine: Engine, database: Database) -> None:
    """A turn runs in a thread of its own, and the next one is an hour later or so."""
    chores = Housekeeping(engine, [None], "me", first=0.0)
    chores.turn(10**9)
    until(lambda: database.value(_DAYS) >= 8, "it is done")


def test_failures_are_logged(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    """What fails is logged, and left for the next turn."""
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        Housekeeping(engine, ["nowhere"], "me").run()
    assert "housekeeping" in caplog.text


def test_a_statement_is_not_logged(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a statement that fails the log has what the server said, on one line."""
    monkeypatch.setattr(housekeeping, "_AHEAD_DAYS", "a week")
    with caplog.at_level(logging.WARNING, "sqlalchemy_fairqueue.worker"):
        Housekeeping(engine, [None], "me").run()
    [record] = caplog.records
    assert 'invalid input syntax for type integer: "a week"' in record.message
    assert "\n" not in record.message
    assert "SQL" not in record.message
