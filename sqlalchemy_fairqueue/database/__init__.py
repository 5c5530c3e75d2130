"""Calls the SQL functions by name: a Python function for each thing that a caller may ask.

Only this package knows drivers, the shapes of calls, and which of our errors an SQLSTATE stands for. Functions that
take a Connection leave its COMMIT to the caller, except ``commit_with``.
"""
