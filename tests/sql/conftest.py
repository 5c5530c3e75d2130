"""The SQL functions as fixtures: see tests/sql/client.py."""

from collections.abc import Iterator

import pytest

from tests.sql.client import Kernel, kernel, open_kernel
from tests.sql.kernel.verbs import unbalanced

__all__ = ["balanced", "kernel", "open_kernel"]


@pytest.fixture
def balanced(kernel: Kernel) -> Iterator[None]:
    """At the end of the test all sums are right."""
    yield
    assert unbalanced(kernel) == []
