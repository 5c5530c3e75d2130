"""Checks of an installation: findings, each with its remedy, for the command line and the dashboard.

A check is a function that reads, changes nothing, and yields findings; its SQL is in ``queries``. An error of a
check becomes a finding, and the other checks go on, unless the database is away.
"""
