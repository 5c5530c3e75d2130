"""Calls the SQL functions by name, so that the rest of the library need not know drivers or the shapes of calls.

This package also translates the SQLSTATE of a failed call into one of our errors. Functions that get a Connection leave
the COMMIT to the caller, except two. ``Link.commit_with`` commits. ``isolate`` commits the transaction of a new
connection, if an event listener of SQLAlchemy has begun it.
"""
