"""Calls the SQL functions by name; the rest of the package calls only the Python functions in here.

Only this package knows drivers, the shapes of calls, and which of our errors an SQLSTATE stands for. Functions that
take a Connection leave its COMMIT to the caller, except ``commit_with``.
"""
