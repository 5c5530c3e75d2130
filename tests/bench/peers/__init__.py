"""Queues of others behind one tiny protocol: a script a queue, run in a virtual environment of its own.

These scripts may use the standard library and their own queue, nothing else of this repository.
"""
