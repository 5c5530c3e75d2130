-- fq_next_ids: take p_count ids for messages that are to be added. Returns them in their order.
-- Locks: none. Errors: none.
create function fairqueue.fq_next_ids(p_count integer)
returns bigint[]
language plpgsql
as $$
declare
  v_schema regnamespace := (select t.typnamespace from pg_type t where t.oid = pg_typeof(null::fairqueue.fq_message));
  v_sequence regclass := pg_get_serial_sequence(v_schema || '.fq_message', 'id');
begin
  return array(select nextval(v_sequence) from generate_series(1, p_count));
end
$$;
