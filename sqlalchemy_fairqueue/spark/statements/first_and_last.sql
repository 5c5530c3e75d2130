-- The first and the last row of the history that fit a condition, by their index.
select f.recorded_xid::text::bigint, f.id, l.recorded_xid::text::bigint, l.id
from (select h.recorded_xid, h.id from {schema}.fq_history h where {where} order by h.recorded_xid, h.id limit 1) f,
  (
    select h.recorded_xid, h.id from {schema}.fq_history h where {where} order by h.recorded_xid desc, h.id desc limit 1
  ) l
