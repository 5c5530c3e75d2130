"""The SQL functions as fixtures: see tests/sql/kernel.py."""

import pytest

pytest.register_assert_rewrite("tests.sql.kernel", "tests.sql.plans")

from tests.sql.kernel import kernel, open_kernel  # noqa: E402 - after its assertions are told to explain themselves

__all__ = ["kernel", "open_kernel"]
