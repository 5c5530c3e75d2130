"""The SQL functions as fixtures: see tests/sql/client.py."""

from tests.sql.client import kernel, open_kernel

__all__ = ["kernel", "open_kernel"]
