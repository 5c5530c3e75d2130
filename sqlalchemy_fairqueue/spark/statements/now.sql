-- The time by the server's clock, in microseconds.
select {schema}.fq_now()
