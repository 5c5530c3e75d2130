"""Calls the SQL functions: for each thing that a caller may ask, a Python function that calls a SQL function by name.

Only this package knows drivers, the shapes of calls, and which of our errors an SQLSTATE stands for. Functions that
take a Connection leave its COMMIT to the caller, except ``commit_with``.
"""
