"""The demo, and the example to read: a small app that parses uploaded Python files for its customers.

Read in this order: ``app/models.py`` and ``app/parsing.py`` are a business without a queue. ``migrations/`` makes its
tables and installs the queue. ``app/fair.py`` is the whole use of the library; ``app/fifo.py`` is the same app with a
plain job table. The rest shows one beside the other: ``scenario`` who uploads what and when, ``crew`` the worker
processes, ``accident`` how one of them dies, ``performance`` one run, ``measuring`` who waited how long, ``screen``,
``summary`` and ``picture`` what is to be seen of it.

Nothing else in the package may import it.
"""
