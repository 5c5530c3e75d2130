-- The time by the server's clock.
select clock_timestamp()
