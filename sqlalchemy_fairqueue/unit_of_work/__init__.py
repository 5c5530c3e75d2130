"""Queue work inside a transaction: recorded on the session, put in lock order, sent right before COMMIT.

An enqueue locks entries of unique indexes: that of a new channel, and that of a key. A completion locks messages. Two
transactions that take such locks in different orders could deadlock, so all transactions take them in one order.

* ``operations`` and ``changes`` define the operations, the phases in which they are sent, and their statements;
* ``sending`` sorts the operations of a transaction into the order, and remembers how far into it the transaction is;
* ``sessions`` ties all of this to the life of a session.
"""
