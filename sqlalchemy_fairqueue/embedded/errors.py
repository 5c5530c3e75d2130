"""Error of a private server, and the variable that names another server instead."""

from __future__ import annotations

DATABASE_URL_VARIABLE = "FAIRQUEUE_DATABASE_URL"
"""Environment variable that names a running server, as a database URL with the right to create databases."""


class EmbeddedServerError(RuntimeError):
    """The private server could not be found, started or stopped. The message ends with what to do."""
