"""libpq's environment variables, set for another server: what starts a server of its own is deaf to them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.pq import Conninfo
from sqlalchemy import NullPool, create_engine, text

from sqlalchemy_fairqueue.embedded import DATABASE_URL_VARIABLE, embedded_server
from tests.fixtures.database import Database
from tests.fixtures.server import programs

_ROOT = Path(__file__).parents[2]
# What libpq knows besides the parameters of a connection.
_OTHERS = (
    "PGSERVICEFILE", "PGSYSCONFDIR", "PGLOCALEDIR", "PGTZ", "PGDATESTYLE", "PGGEQO", "PGREQUIRESSL", "PGREALM",
    "PGDATA", "PGSSLKEYLOGFILE", "PGOAUTHDEBUG",
)  # fmt: skip
_NONSENSE = dict.fromkeys(
    [option.envvar.decode() for option in Conninfo.get_defaults() if option.envvar is not None] + list(_OTHERS),
    "nonsense",
)
_OF_ANOTHER_SERVER = _NONSENSE | {
    "PGSERVICE": "x", "PGHOST": "db.example.com", "PGHOSTADDR": "127.0.0.1", "PGPORT": "5433", "PGDATABASE": "shop",
    "PGUSER": "shop", "PGPASSWORD": "secret", "PGPASSFILE": "/nowhere", "PGOPTIONS": "-c search_path=foo",
    "PGAPPNAME": "shop", "PGSSLMODE": "verify-full", "PGSSLNEGOTIATION": "direct", "PGSSLROOTCERT": "/nowhere",
    "PGSSLCERT": "/nowhere", "PGSSLKEY": "/nowhere", "PGSSLCRL": "/nowhere", "PGSSLCRLDIR": "/nowhere", "PGSSLSNI": "0",
    "PGSSLCERTMODE": "require", "PGSSLMINPROTOCOLVERSION": "TLSv1.3", "PGSSLMAXPROTOCOLVERSION": "TLSv1.3",
    "PGSSLCOMPRESSION": "1", "PGREQUIREPEER": "shop", "PGREQUIREAUTH": "scram-sha-256", "PGCHANNELBINDING": "require",
    "PGMINPROTOCOLVERSION": "3.2", "PGMAXPROTOCOLVERSION": "3.2", "PGGSSENCMODE": "require", "PGGSSDELEGATION": "1",
    "PGGSSLIB": "gssapi", "PGKRBSRVNAME": "shop", "PGTARGETSESSIONATTRS": "standby", "PGLOADBALANCEHOSTS": "random",
    "PGCONNECT_TIMEOUT": "1", "PGCLIENTENCODING": "LATIN1", "PGTZ": "Asia/Kathmandu", "PGDATESTYLE": "German",
    "PGGEQO": "off", "PGREQUIRESSL": "1",
}  # fmt: skip
_PLUGIN = """
import pytest
from sqlalchemy import text

@pytest.fixture(scope="session")
def fairqueue_driver():
    return {sync!r}

@pytest.fixture(scope="session")
def fairqueue_async_driver():
    return {asynchronous!r}

def test_engine(fairqueue_engine):
    assert fairqueue_engine.driver == {sync!r}
    with fairqueue_engine.connect() as connection:
        assert connection.scalar(text("show search_path")) == '"$user", public'

async def _shown(engine):
    async with engine.connect() as connection:
        return await connection.scalar(text("show search_path"))

def test_readme(capsys):
    import runpy
    runpy.run_path("fair.py", run_name="__main__")
    served = capsys.readouterr().out.splitlines()
    assert sorted(served) == sorted([*(f"bob {{file}}" for file in range(1, 6)), "alice 1", "alice 2"])
    assert served.index("alice 2") < 4

def test_async_engine(fairqueue_async_engine):
    import asyncio
    assert fairqueue_async_engine.driver == {asynchronous!r}
    assert asyncio.run(_shown(fairqueue_async_engine)) == '"$user", public'
"""


def _run(folder: Path, variables: dict[str, str], *command: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith("FAIRQUEUE_")}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=own | {DATABASE_URL_VARIABLE: "", "PYTHONPATH": str(_ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("variables", "sync", "asynchronous"),
    [
        pytest.param(_OF_ANOTHER_SERVER, "psycopg2", "asyncpg", id="of another server"),
        pytest.param(_NONSENSE, "psycopg", "psycopg", marks=pytest.mark.whole, id="nonsense"),
    ],
)
def test_the_plugin_and_the_readme(tmp_path: Path, variables: dict[str, str], sync: str, asynchronous: str) -> None:
    """Tests of an application have the private server's databases, by each driver; the README's program, pasted into a
    file, serves alice's two files in turn with bob's five on a server of its own.
    """
    [program] = re.findall(r"^```python\n(.*?)^```", (_ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "fair.py").write_text(program)
    pytest.importorskip(sync, reason="another driver")
    pytest.importorskip(asynchronous, reason="another driver")
    (tmp_path / "test_shop.py").write_text(_PLUGIN.format(sync=sync, asynchronous=asynchronous))
    said = _run(
        tmp_path, variables | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, "-m", "pytest", "-q", "-p",
        "sqlalchemy_fairqueue.testing.plugin", "--rootdir", ".", "-c", os.devnull,
    )  # fmt: skip
    assert "3 passed" in said


@pytest.mark.whole
@pytest.mark.timeout(300)
def test_the_demo_and_this_suite(tmp_path: Path) -> None:
    """The demo runs, with its worker processes; a test of this suite passes, in a worker of its own."""
    assert "each exactly once" in _run(tmp_path, _OF_ANOTHER_SERVER, "-m", "sqlalchemy_fairqueue.demo", "--limit", "20")
    test = "tests/worker/test_engines.py::test_a_strict_default"
    _run(_ROOT, _OF_ANOTHER_SERVER, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider", test)


def test_others_hear_them(monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
    """An engine for another server goes on to follow the variables while a private one runs, and after it."""
    with embedded_server(programs(), durable=False) as private:
        with psycopg.connect(database.conninfo) as connected:
            for variable in ("host", "port", "user", "password", "dbname"):
                name = f"PG{variable.upper().replace('DBNAME', 'DATABASE')}"
                monkeypatch.setenv(name, str(getattr(connected.info, variable)))
        monkeypatch.setenv("PGOPTIONS", "-c search_path=foo")
        monkeypatch.setenv("PGTZ", "Asia/Kathmandu")
        place = text("select current_setting('data_directory'), current_setting('search_path')")
        with create_engine("postgresql+psycopg://", poolclass=NullPool).connect() as connection:
            assert connection.execute(place).one() == (database.value("show data_directory"), "foo")
        with create_engine(private.url(), poolclass=NullPool).connect() as connection:
            assert connection.execute(place).one() == (str(private.data_directory), '"$user", public')
        with embedded_server(programs(), durable=False) as third:
            assert "PGTZ" not in os.environ
            third.restart()
    assert os.environ["PGTZ"] == "Asia/Kathmandu"
