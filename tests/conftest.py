"""Fixture modules of the suite, one for each concern."""

import os
import signal

import pytest

# A suite that was started in the background is deaf to interrupts, and so would be the programs that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A server that the suite starts is not the one that libpq's variables lead to.
if not os.environ.get("FAIRQUEUE_DATABASE_URL", "").strip():
    for _name in [name for name in os.environ if name.startswith("PG")]:
        del os.environ[_name]

# Whatever imports them first: their assertions explain themselves.
pytest.register_assert_rewrite(
    "tests.sql.client", "tests.sql.plans", "tests.sql.kernel.verbs", "tests.sql.life.verbs", "tests.sql.load.loads"
)

pytest_plugins = [
    "tests.fixtures.options",  # --full, --sample, --whole; Hypothesis profiles
    "tests.fixtures.garbage",  # none of modules and tests
    "tests.fixtures.server",  # server, private_server
    "tests.fixtures.database",  # database, empty_database, make_database
    "tests.fixtures.drivers",  # FAIRQUEUE_DRIVER
    "tests.fixtures.forks",  # forked_children
    "tests.fixtures.connections",  # engine, async_engine, session_factory, async_session_factory, connect
    "tests.fixtures.clock",  # clock
    "tests.fixtures.waits",  # waits
    "tests.fixtures.spark",  # spark
]
