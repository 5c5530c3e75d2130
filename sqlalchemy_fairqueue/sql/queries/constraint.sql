-- The constraints of the tables of an installation, without not null, which is a fact of the column and a constraint
-- only since PostgreSQL 18.
select o.relname || '.' || k.conname as name, pg_get_constraintdef(k.oid) as definition
from {ours}
join pg_constraint k on k.conrelid = o.oid and k.contype <> 'n'
order by o.relname, k.conname
