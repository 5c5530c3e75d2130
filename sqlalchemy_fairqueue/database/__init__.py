"""Calls the SQL functions by name, for the rest of the library.

Only this package knows drivers and the shapes of calls. It also translates the SQLSTATE of a failed call into one of
our errors. Functions that get a Connection leave the COMMIT to the caller. There are two exceptions:
``Link.commit_with``, and ``isolate``, which commits what a listener has begun on a new connection.
"""
