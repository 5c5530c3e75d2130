import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, Engine, text

from sqlalchemy_fairqueue.embedded import DATABASE_URL_VARIABLE
from tests.fixtures.options import PATIENCE
from tests.fixtures.programs import link_programs

_DEMO = [sys.executable, "-m", "sqlalchemy_fairqueue.demo"]
_CUSTOMERS = ["Bob", "Alice", "Carol", "Dave", "Erin", "Frank", "Grace", "Heidi", "Ivan", "Judy", "Kim"]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for temporary files, short enough for sockets and open to the account that runs the server."""
    with tempfile.TemporaryDirectory(prefix="demo-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        yield folder


@pytest.fixture
def no_java() -> Iterator[Path]:
    """A folder with the system's programs but Java, which the account that runs the server can use, too."""
    with tempfile.TemporaryDirectory(prefix="programs-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        link_programs(folder, without="java")
        yield folder


@pytest.fixture
def environment(temporary: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a demo whose files all lie in folders of the test."""
    (tmp_path / "home").mkdir()
    settings = {name: value for name, value in os.environ.items() if name not in {"FORCE_COLOR", "TTY_COMPATIBLE"}}
    return settings | {
        "TMPDIR": str(temporary),
        "HOME": str(tmp_path / "home"),
        DATABASE_URL_VARIABLE: "",
    }


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The current directory of a demo."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@contextlib.contextmanager
def _demo(work: Path, environment: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A demo that runs; it hears Ctrl-C even if this suite was started in the background of a shell, and does not."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    with subprocess.Popen(
        [*_DEMO, *arguments],
        cwd=work,
        env=environment,
        text=True,
        bufsize=1,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        signal.signal(signal.SIGINT, handler)
        try:
            yield process
        finally:
            process.kill()


def _read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if words in line:
            return
    pytest.fail(f"the demo ended before it said {words!r}: {''.join(said)}")


def _processes_with(words: str) -> list[str]:
    """Command lines of the processes that mention something."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_text(errors="replace").replace("\0", " "))
    return [line for line in found if words in line]


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


@pytest.mark.timeout(300)
def test_a_run_keeps_its_promises(temporary: Path, work: Path, environment: dict[str, str]) -> None:
    """The demo shows that small customers pass by Bob's backlog in the fair queue, what becomes of a killed worker's
    files in both runs; it verifies both, and leaves only the picture.
    """
    # With 60 files, Bob is half served before a server that stands still for a second delays the others.
    done = subprocess.run(
        [*_DEMO, "--limit", "150"], cwd=work, env=environment, text=True, capture_output=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    table = done.stdout.partition("last at")[2]
    for customer in _CUSTOMERS:
        assert re.search(rf"^ {customer} +\d+( +[\d.]+ s){{6}}", table, re.MULTILINE), done.stdout
    for service in ("fair queue", "FIFO"):
        found = re.search(rf"✓ {service}: (\d+) uploads, (\d+) results, each exactly once", done.stdout)
        assert found is not None, done.stdout
        assert int(found[1]) == int(found[2]) > 150
        found = re.search(
            rf"✓ {service}: worker \d+ was killed by SIGKILL with (\d+) files? in its hands\.\n"
            r"  Others had parsed (?:it|them) ([\d.]+) s .*later \(lease: 3 s\), each once",
            done.stdout,
        )
        assert found is not None, done.stdout
        assert int(found[1]) >= 1
        assert float(found[2]) > 0
    medians = dict(re.findall(r"^ (Bob|the ten others) +\d+ +([\d.]+) s", table, re.MULTILINE))
    assert float(medians["the ten others"]) < float(medians["Bob"]), done.stdout
    assert "fairqueue-demo.png" in done.stdout
    assert [path.name for path in work.iterdir()] == ["fairqueue-demo.png"]
    assert (work / "fairqueue-demo.png").read_bytes().startswith(b"\x89PNG")
    assert list(temporary.iterdir()) == []
    assert list(Path(environment["HOME"]).iterdir()) == []
    assert _processes_with(str(temporary)) == []


@pytest.mark.whole
@pytest.mark.timeout(600)
def test_its_history_becomes_a_report(temporary: Path, no_java: Path, work: Path, environment: dict[str, str]) -> None:
    """With --report the history is reported on, with a replay, where no Java is; each step is told, the forecast stands
    beside the real half, and only the page is left.
    """
    environment |= {"PATH": str(no_java)}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [*_DEMO, "--limit", "50", "--report", "fair.html"],
        cwd=work, env=environment, text=True, capture_output=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    found = re.search(r"How fair it was, from (\d+) recorded attempts, as a page: fair\.html", done.stdout)
    assert found is not None, done.stdout
    assert int(found[1]) > 50
    assert sorted(path.name for path in work.iterdir()) == ["fair.html", "fairqueue-demo.png"]
    page = (work / "fair.html").read_text()
    assert "first come, first served" in page
    assert "Kim" in page
    assert "report: replaying the record (2 of 5)" in done.stdout
    assert re.search(r"a small customer's file waits for \d+ others\.", done.stdout)
    assert re.search(r"In the real second half it waited for \d+\.", done.stdout)
    assert list(temporary.iterdir()) == []
    assert list(Path(environment["HOME"]).iterdir()) == []


@pytest.mark.parametrize("moment", ["fair queue: at work", pytest.param("was killed", marks=pytest.mark.whole)])
def test_it_can_be_stopped(temporary: Path, work: Path, environment: dict[str, str], moment: str) -> None:
    """Ctrl-C stops the demo with the status of an interrupt, also right after a worker was killed; nothing is left."""
    with _demo(work, environment, "--workers", "1", "--limit", "300") as process:
        _read_until(process, moment)
        children = [os.pidfd_open(child) for child in _children(process.pid)]
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=PATIENCE.total_seconds())

        assert process.returncode == 128 + signal.SIGINT, said
        for child in children:
            assert select.select([child], [], [], PATIENCE.total_seconds())[0], "a process of the demo still runs"
            os.close(child)
    assert list(work.iterdir()) == []
    assert list(temporary.iterdir()) == []
    assert _processes_with(str(temporary)) == []


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_a_killed_worker_fails_the_demo(
    server_url: URL, maintenance: Engine, temporary: Path, work: Path, environment: dict[str, str]
) -> None:
    """A worker that dies, and was not killed by the demo, ends it with an error that tells which and how.

    On a server named in the environment the demo starts none, and drops its databases also then; nothing is left.
    """
    environment[DATABASE_URL_VARIABLE] = server_url.render_as_string(hide_password=False)
    environment["PGAPPNAME"] = work.parent.name
    used = text("select distinct datname from pg_stat_activity where application_name = :name and datname is not null")
    left = text("select datname from pg_database where datname = any(:names)")
    with maintenance.connect() as connection:
        with _demo(work, environment, "--workers", "1", "--limit", "300") as process:
            _read_until(process, "fair queue: at work")
            names = [name for name in connection.scalars(used, {"name": work.parent.name}) if "fairqueue_" in name]
            assert list(temporary.iterdir()) == []
            workers = [child for child in _children(process.pid) if "spawn_main" in _command_line(child)]
            os.kill(workers[-1], signal.SIGKILL)
            said, _ = process.communicate(timeout=PATIENCE.total_seconds())

        assert process.returncode == 1
        assert re.search(r"the demo failed: worker \d+ was killed by signal 9", said), said
        own = [name for name in names if name.startswith("fairqueue_")]
        assert own
        assert list(connection.scalars(left, {"names": own})) == []
    assert list(work.iterdir()) == []
    assert list(temporary.iterdir()) == []
