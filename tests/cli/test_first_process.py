"""The command as the first process of a container, to which the kernel delivers no signal without a handler."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sqlalchemy_fairqueue import Queue
from tests.cli.conftest import PROGRAM
from tests.fixtures.database import Database
from tests.fixtures.options import PATIENCE
from tests.worker.helpers import until

_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child"]
_SLOW = """
import threading
from pathlib import Path

Path({mark!r}).touch()
threading.Event().wait()
"""
_APPLICATION = """
from pathlib import Path
from sqlalchemy_fairqueue import Queue

queue = Queue("documents")

@queue.handler()
def handle(delivery):
    Path({mark!r}).touch()
"""


def _cannot() -> str:
    """Why no process can be the first one of a namespace here; empty: it can."""
    if shutil.which("unshare") is None:
        return "this system has no program unshare"
    tried = subprocess.run([*_NAMESPACE, "true"], capture_output=True, text=True, check=False)
    return f"no process namespace can be made here: {tried.stderr.strip()}" if tried.returncode else ""


pytestmark = pytest.mark.skipif(bool(_cannot()), reason=_cannot())


@contextmanager
def _first(*words: str | Path, path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The process that has made a namespace, and ends with the status of the first process there."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(path), *sys.path])}
    with subprocess.Popen([*_NAMESPACE, *words], env=environment, cwd=path) as outside:
        try:
            yield outside
        finally:
            outside.kill()


def _terminated(outside: "subprocess.Popen[bytes]") -> int:
    """Send a SIGTERM to the first process of a namespace; its status."""
    [pid] = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
    os.kill(int(pid), signal.SIGTERM)
    return outside.wait(PATIENCE.total_seconds())


@pytest.mark.many(1)
@pytest.mark.parametrize("module", ["sqlalchemy", "typer", "application"])
def test_a_stop_while_modules_are_imported(tmp_path: Path, module: str) -> None:
    """It ends, with the status that a shell has for a process that a SIGTERM ended, whatever it imports just now."""
    mark = tmp_path / "imported"
    (tmp_path / f"{module}.py").write_text(_SLOW.format(mark=str(mark)))
    with _first(*PROGRAM, "worker", "application:queue", path=tmp_path) as process:
        until(mark.exists, "it imports")
        assert _terminated(process) == 128 + signal.SIGTERM


def test_a_stop_of_the_worker(tmp_path: Path, database: Database, engine: object) -> None:
    """A worker that has started stops with grace."""
    mark = tmp_path / "handled"
    (tmp_path / "application.py").write_text(_APPLICATION.format(mark=str(mark)))
    Queue("documents").enqueue(engine, channel="a", payload=1)  # type: ignore[call-overload]
    url = database.url.render_as_string(hide_password=False)
    with _first(*PROGRAM, "worker", "application:queue", "--database-url", url, path=tmp_path) as process:
        until(mark.exists, "it works")
        assert _terminated(process) == 0
    assert database.value("select count(*) from fq_message") == 0


def test_a_program_of_the_user(tmp_path: Path) -> None:
    """A program that imports the library as the first process keeps its signals as they are."""
    mark = tmp_path / "seen"
    source = (
        "import signal, pathlib, sqlalchemy_fairqueue\n"
        f"pathlib.Path({str(mark)!r}).write_text(str(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL))\n"
    )
    with _first(sys.executable, "-c", source, path=tmp_path) as process:
        assert process.wait(PATIENCE.total_seconds()) == 0
    assert mark.read_text() == "True"


def test_the_console_script(tmp_path: Path) -> None:
    """The installed program is recognised by its name."""
    script, mark = tmp_path / "bin" / "fairqueue", tmp_path / "imported"
    script.parent.mkdir()
    script.write_text("from sqlalchemy_fairqueue.cli.__main__ import run\nrun()\n")
    (tmp_path / "sqlalchemy.py").write_text(_SLOW.format(mark=str(mark)))
    with _first(sys.executable, script, path=tmp_path) as process:
        until(mark.exists, "it imports")
        assert _terminated(process) == 128 + signal.SIGTERM
