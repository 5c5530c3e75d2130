"""An application that uses no asyncio."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

sys.modules["greenlet"] = None
import alembic_ext
from sqlalchemy.orm import Session
from sqlalchemy_fairqueue import InvalidArgument, Queue

queue = Queue("documents")
assert "msgspec" not in sys.modules
queue.enqueue(Session(), channel="customer-7", payload=1)
try:
    Queue("documents").enqueue(object(), channel="customer-7", payload=1)
except InvalidArgument as error:
    print(error)

@queue.job
def parse(upload: str) -> None: ...

parse.prepare("a", "b")
assert "msgspec" in sys.modules and "pydantic" not in sys.modules
"""


def test_the_package_needs_no_greenlet() -> None:
    """SQLAlchemy 2.1 does not install greenlet, so a sync application imports and uses the package without it. Without
    jobs it does not import what converts their arguments, and with jobs no pydantic.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "object" in done.stdout
