"""A PgBouncer before the test's server, in transaction pooling: each transaction gets whichever connection is free."""

import contextlib
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import URL

from sqlalchemy_fairqueue.embedded.server import Account
from tests.worker.helpers import until

CONNECTIONS = 4
"""Connections that the pooler keeps to the server."""
_PORT = 6432
# Everybody may come in: the folder is the account's alone, and the account is the server's.
_CONFIGURATION = """
[databases]
{name} = host={host} port={port} user={user}{password}
[pgbouncer]
listen_addr =
listen_port = {own_port}
unix_socket_dir = {folder}
pidfile = {folder}/pid
logfile = {folder}/log
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
"""


def program() -> str | None:
    """Where PgBouncer is on this machine; Debian puts it where only administrators look."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")


def _listens(path: Path) -> bool:
    """Whether somebody accepts connections there: the path exists a moment before that."""
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(path)) == 0


@contextlib.contextmanager
def pooler(server: URL) -> Iterator[URL]:
    """Run one for the time of the block; the URL of the server's database through it."""
    found = program()
    assert found is not None
    account = Account.for_server()
    # A socket's path must be short, whatever folder for temporary files the run has been given.
    with tempfile.TemporaryDirectory(prefix="fq", dir="/tmp") as directory:
        Path(directory).chmod(0o711)
        folder = Path(directory) / "pooler"
        account.make_folder(folder)
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(
            _CONFIGURATION.format(
                host=server.query.get("host") or server.host or "localhost",
                port=server.query.get("port") or server.port or 5432,
                user=server.username or "postgres",
                password=f" password='{server.password}'" if server.password else "",
                name=server.database,
                own_port=_PORT,
                folder=folder,
                connections=CONNECTIONS,
            )
        )
        account.give(configuration)
        process = account.start([found, str(configuration)])
        try:
            until(lambda: process.poll() is not None or _listens(folder / f".s.PGSQL.{_PORT}"), "PgBouncer listens")
            assert process.poll() is None, (folder / "log").read_text()
            yield server.set(host=None, port=None, query={"host": str(folder), "port": str(_PORT)})
        finally:
            process.kill()
            process.communicate()
