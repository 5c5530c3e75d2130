"""Calls of the SQL functions: a Python function for what a caller asks, which calls one of SQL by its name.

This package alone knows drivers, the shapes of calls, and which of our errors an SQLSTATE stands for. Functions that
take a Connection leave its COMMIT to the caller, except ``commit_with``.
"""
