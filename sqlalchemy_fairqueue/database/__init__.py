"""Calls of the SQL functions: a Python function for what a caller asks, which calls one of SQL by its name.

Each takes a Connection, the queue or schema that it goes to, and Python values, and returns Python values; or it takes
no Connection, and returns the call that is to be sent. Where there is nothing to decide, callers name the function of
SQL themselves, by ``Target.call``. This package alone knows drivers, the shapes of calls, and which of our errors an
SQLSTATE stands for. Nothing here commits but ``commit_with``: the caller does.
"""
