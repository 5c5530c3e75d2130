"""Reading of queues into Spark: once (history, messages, channels, dead letters) and as a stream (history, changes).

Readers write nothing, except that the stream of changes moves its replication slot on. They hold no lock that a call of
a queue waits for. Housekeeping of the history (``fq_keep_history``) skips a day that is being read.
"""
