"""Executors of a worker: they call its handlers.

``base`` is the contract with the other parts of the worker, and all that ``threads`` and ``tasks`` share.
``handler_calls`` is one call: arguments, transaction, time limit, and the decision after a failure.
``child_processes`` runs handlers that were declared with ``isolation="process"``, and ``child_main`` is what such a
process runs.

An executor takes deliveries out of its buffer and hands each with a decision to the settler. It does not use the
worker's connections.
"""
