"""What a program imports, and what it can do without: each step of one program in a process of its own."""

import subprocess
import sys

import pytest

_ABSENT = ("greenlet", "fcntl", "grp", "pwd", "resource", "termios")
_PROGRAM = f"""
import sys
sys.modules |= dict.fromkeys({_ABSENT!r})

# Nothing is mapped before it is asked for.
import sqlalchemy_fairqueue
assert not sys.modules.keys() & {{"sqlalchemy_fairqueue.models", "sqlalchemy_fairqueue.worker"}}
assert set(sqlalchemy_fairqueue.__all__) <= set(dir(sqlalchemy_fairqueue))
assert not sqlalchemy_fairqueue.models.DefaultBase.metadata.tables
assert not hasattr(sqlalchemy_fairqueue.models, "Msg")
assert not sqlalchemy_fairqueue.models.DefaultBase.metadata.tables

# A producer imports nothing that converts arguments of jobs; one of jobs no pydantic.
from sqlalchemy.orm import Session
from sqlalchemy_fairqueue import InvalidArgument, Queue
queue = Queue("documents")
assert "msgspec" not in sys.modules
queue.enqueue(Session(), channel="customer-7", payload=1)
try:
    Queue("documents").enqueue(object(), channel="customer-7", payload=1)
except InvalidArgument as error:
    assert "object" in str(error)
else:
    raise AssertionError

@queue.job
def parse(upload: str) -> None: ...

parse.prepare("a", "b")
assert "msgspec" in sys.modules and "pydantic" not in sys.modules
assert not sqlalchemy_fairqueue.models.DefaultBase.metadata.tables

# Each way to name a class finds it.
{{use}}
assert sqlalchemy_fairqueue.Worker is sqlalchemy_fairqueue.worker.Worker
assert sqlalchemy_fairqueue.models.metadata.tables
assert sqlalchemy_fairqueue.models.Message is sqlalchemy_fairqueue.models.Message
assert set(sqlalchemy_fairqueue.models.__all__) <= set(dir(sqlalchemy_fairqueue.models))

# A test run that uses none of the plugin's fixtures has neither drivers nor servers nor what only fixtures need.
import sqlalchemy_fairqueue.testing.plugin
assert not sys.modules.keys() & {{"alembic", "factory", "psycopg", "sqlalchemy_fairqueue.embedded"}}

import alembic_ext, sqlalchemy_fairqueue.cli, sqlalchemy_fairqueue.embedded
"""


@pytest.mark.many(1)
@pytest.mark.parametrize(
    "use",
    [
        "from sqlalchemy_fairqueue.models import Message",
        "sqlalchemy_fairqueue.models.Channel.name",
        "from sqlalchemy_fairqueue.models import metadata",
        "from sqlalchemy_fairqueue.models import *",
    ],
)
def test_a_program_imports_what_it_uses(use: str) -> None:
    """Without greenlet, which SQLAlchemy 2.1 does not install, and without modules that only POSIX has, all but async
    and child processes works. Mapped classes, workers, drivers and what converts arguments wait for their first use.
    """
    program = _PROGRAM.replace("{use}", use)
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
