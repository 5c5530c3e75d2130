"""Error of a private server, and the variable that names another server instead."""

from __future__ import annotations

DATABASE_URL_VARIABLE = "FAIRQUEUE_DATABASE_URL"
"""Environment variable that names a running server, as a database URL with the right to create databases."""

TEST_SERVER_URL_VARIABLE = "FAIRQUEUE_TEST_SERVER_URL"
"""The same for the plugin of pytest. It is another one: the database that an application runs on is not for tests."""


class EmbeddedServerError(RuntimeError):
    """The private server could not be found, started or stopped. The message ends with what to do.

    Example:
        >>> try:
        ...     Programs.in_directory("/srv/postgresql")
        ... except EmbeddedServerError as error:
        ...     print(error)
        directory '/srv/postgresql' holds no PostgreSQL server: postgres, initdb, pg_ctl is missing; name the folder ...
    """
