"""Queue work inside a transaction: recorded on the session, put in lock order, sent right before COMMIT.

An enqueue locks a new channel, and the key of its message, by entries in unique indexes. A completion locks messages.
If transactions took such locks in different orders, they could deadlock, so all take them in one order.

* ``operations`` and ``changes`` define the operations, the phases in which they are sent, and their statements;
* ``sending`` sorts the operations of a transaction into this order, and refuses an enqueue that would break the order;
* ``sessions`` ties all of this to the life of a session.
"""
