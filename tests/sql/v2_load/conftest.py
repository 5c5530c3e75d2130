"""Databases with version 2 of the schema, whichever version the rest of the suite runs on."""

from tests.sql.v2_kernel.conftest import database

__all__ = ["database"]
