-- The first and the last row of the history that meet a condition, in the order of fq_history_recorded_ix.
select f.recorded_xid::text::bigint, f.id, l.recorded_xid::text::bigint, l.id
from (select h.recorded_xid, h.id from {schema}.fq_history h where {where} order by h.recorded_xid, h.id limit 1) f,
  (
    select h.recorded_xid, h.id from {schema}.fq_history h where {where} order by h.recorded_xid desc, h.id desc limit 1
  ) l
