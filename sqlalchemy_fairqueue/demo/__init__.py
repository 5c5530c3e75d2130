"""The demo, and the example to read: a small app that parses uploaded Python files for its customers.

Read in this order: ``app/models.py`` and ``app/parsing.py`` are a business without a queue. ``migrations/`` makes its
tables and installs the queue. ``app/fair.py`` is the whole use of the library; ``app/fifo.py`` is the same app with a
plain job table. The rest runs both beside each other: ``scenario`` (which customer uploads what, and when),
``worker_processes``, ``takeover`` (a worker is killed), ``run``, ``outcome``, ``progress_table``, ``summary``,
``chart`` and ``report``.

Nothing else in the package may import it.
"""
