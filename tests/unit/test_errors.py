import pickle
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy.exc import OperationalError

import sqlalchemy_fairqueue
from sqlalchemy_fairqueue import errors
from sqlalchemy_fairqueue.database.errors import to_install
from sqlalchemy_fairqueue.errors import FairQueueError, InvalidArgument, PayloadError
from sqlalchemy_fairqueue.models import ReadOnlyModel
from sqlalchemy_fairqueue.sql.files import latest_version
from sqlalchemy_fairqueue.texts import said

_ERRORS = [
    errors.AutocommitError("x"),
    errors.ChannelFull("x", "customer-7", 1000),
    errors.DuplicateMessage("customer-7", "daily", 17),
    errors.HandlerCrashed(17, "parse", -11),
    errors.HandlerTimeout(17, "parse", timedelta(seconds=5)),
    errors.InvalidArgument("x"),
    errors.IsolationError("x"),
    errors.LeaseLost((17, 18), 812, datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC), "b"),
    errors.LockOrderError("x", sent=("", "q", "b", ""), refused=("", "q", "a", "")),
    errors.MessageCancelled(17),
    errors.NotGranted("x"),
    errors.PayloadError("is odd", "$.a[0]"),
    errors.SchemaMismatch("x"),
    errors.ResultError(17),
    errors.ResultNotReady(17, timedelta(seconds=3)),
    errors.MessageFailed(17, "no", "ValueError: x"),
    errors.ResultCancelled(17),
    errors.ResultNotKept(17, "it expired"),
    errors.UnknownMessage(17, "q"),
    errors.UnknownChannel("x", "q", "a"),
    errors.UnknownGroup("x", "q", UUID(int=7)),
    errors.UnknownSchedule("x", "q", "a", "nightly"),
    errors.StartError("documents", "client", "OSError: no"),
    errors.UnsentWork("x"),
    errors.WorkerError("x"),
]


_CLASSES = {cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, FairQueueError)}


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: type(error).__name__)
def test_pickling(error: FairQueueError) -> None:
    """An error goes to another process with its words and its attributes."""
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
    assert copy.args == error.args


def test_every_class_is_tried_and_exported() -> None:
    """Every error class is importable from ``errors`` and stands in the list above."""
    assert {type(error) for error in _ERRORS} | {FairQueueError} == _CLASSES
    assert {cls.__name__ for cls in _CLASSES} <= set(errors.__all__)


def test_what_to_install() -> None:
    """Without a queue the advice names the newest version, the schema, and the call for databases of tests."""
    assert to_install().startswith(f"put op.create_fairqueue(version={latest_version()}) into an Alembic migration")
    assert f"op.create_fairqueue(version={latest_version()}, schema='apps')" in to_install("apps")
    assert "install_fairqueue(engine, schema='apps')" in to_install("apps")


def test_value_errors() -> None:
    """Wrong arguments and payloads are ValueErrors too."""
    assert issubclass(InvalidArgument, ValueError)
    assert issubclass(PayloadError, ValueError)


def test_every_error_is_documented() -> None:
    """The error page has an anchor for every class and for every code that the SQL raises."""
    root = Path(sqlalchemy_fairqueue.__file__).parent
    page = (root.parent / "docs" / "errors.md").read_text()
    files = [*(root / "sql").rglob("*.sql"), *(root / "sql").glob("*.py")]
    # That one is caught where it is raised.
    codes = {code for file in files for code in re.findall(r"'(QF0\d\d)'", file.read_text())} - {"QF099"}
    names = {cls.__name__ for cls in _CLASSES} | {ReadOnlyModel.__name__} | codes
    assert codes >= {"QF001", "QF003"}
    assert [name for name in sorted(names) if f'<a id="{name.lower()}"></a>' not in page] == []


def test_words_of_somebody_else() -> None:
    """On one line, of a length that a log can bear, and without what a statement was given."""
    assert said(ValueError("a\n  b")) == "a b"
    long = said(ValueError("x" * 1_000_000))
    assert len(long) < 5_000
    assert long.endswith("x ... (1,000,000 characters)")
    failed = OperationalError("select :card", {"card": "4111"}, RuntimeError("the server said\nno"))
    assert said(failed) == "the server said no"
