"""Adapter for an independent harness that measures queues of PostgreSQL for hours.

The folder holds what the harness wants of a contestant: ``adapter.json``, its manifest, ``Dockerfile`` and ``adapter``,
one process that produces, works and reports. docs/benchmarks.md says how to run it.
"""
