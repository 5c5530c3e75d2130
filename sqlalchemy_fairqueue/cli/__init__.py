"""``fairqueue``, the command line for operators: start workers, show queues, configure them, find out what is wrong.

A leaf: nothing imports it, and it must do nothing that the library cannot do from Python. It needs the extra ``cli``.

A command is a function in the module of its subject. It takes :class:`~sqlalchemy_fairqueue.cli.options.Options` and
returns a :class:`~sqlalchemy_fairqueue.cli.output.Result`; its own options follow from its signature and docstring
(``options``), its rows and documents from a list of columns (``tables``). ``program`` imports the module of the command
that is called. ``runner`` adds the options that all commands have, prints the result as text or as JSON, and turns
every error into a message and an exit status.
"""
