-- Queues and names of channels.
select c.id, c.queue, c.name from {schema}.fq_channel c where c.id = any(%(ids)s)
