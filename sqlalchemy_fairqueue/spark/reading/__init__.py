"""Reading of queues into Spark: once (history, messages, channels, dead letters) and as a stream (history, changes).

A reader writes only the position of a replication slot, and holds no lock that a verb of a queue waits for.
Housekeeping of the history (``fq_keep_history``) skips a day that is being read.
"""
