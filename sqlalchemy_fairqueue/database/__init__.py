"""Calls the SQL functions by name, for the rest of the library.

Only this package knows drivers, the shapes of calls, and which of our errors an SQLSTATE stands for. Functions that
call the database on a Connection leave the COMMIT to the caller, except ``Link.commit_with``.
"""
