-- The constraints of the tables of an installation. Not null is a fact of the column: only since PostgreSQL 18 is it a
-- constraint too.
select o.relname || '.' || k.conname as name, pg_get_constraintdef(k.oid) as definition
from {ours}
join pg_constraint k on k.conrelid = o.oid and k.contype <> 'n'
order by o.relname, k.conname
