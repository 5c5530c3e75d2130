"""Databases with version 2 of the schema, whichever version the rest of the suite runs on."""

import pytest

pytest.register_assert_rewrite("tests.sql.v2_kernel.verbs", "tests.sql.v2_life.verbs", "tests.sql.v2_load.loads")

from tests.sql.v2_kernel.conftest import database  # noqa: E402 - after its assertions are told to explain themselves

__all__ = ["database"]
