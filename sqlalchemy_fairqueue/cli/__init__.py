"""``fairqueue``, the command line for operators: start workers, look at queues, change them, find out what is wrong.

A leaf: nobody imports it, and it must do nothing that the library cannot do from Python. It needs the extra ``cli``.

A command is a function that takes :class:`~sqlalchemy_fairqueue.cli.options.Options` and returns an
:class:`~sqlalchemy_fairqueue.cli.answers.Answer`; ``frame`` gives it the options that all have, prints what it
answers, for people or as JSON, and turns whatever goes wrong into a message and an exit status.
"""
