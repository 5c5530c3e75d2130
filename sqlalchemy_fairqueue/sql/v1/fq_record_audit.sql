-- fq_record_audit: record that somebody did p_what to a queue (null: to the installation), to its channel p_channel, or
-- to the messages p_message_ids, a row for each, in the caller's transaction. p_by: who (null: the caller's role);
-- p_details: a JSON object.
-- Guarantees: the rows are there if and only if the caller's transaction commits.
-- Locks: none. Index: none. Errors: QF001 bad name, no object; QF007.
create function fairqueue.fq_record_audit(
  p_queue text, p_what text, p_by text, p_channel text, p_message_ids bigint[], p_details jsonb
)
returns void
language plpgsql
security definer
as $$
declare
  v_by text := coalesce(p_by, fairqueue.fq_caller()::text);
begin
  perform fairqueue.fq_check_grant(
    array['producer', 'operator']::text[], p_queue,
    (case when p_channel is null then null else array[p_channel] end)::text[]
  );
  perform fairqueue.fq_check_names('{queue}'::text[], array[p_queue]::text[])
  where p_queue is not null;
  if (octet_length(p_what) between 1 and 512 and octet_length(v_by) between 1 and 512) is not true
    or jsonb_typeof(p_details) <> 'object'
  then
    raise exception 'fq_record_audit has what %, by %, details of type %', quote_nullable(left(p_what, 80)),
      left(v_by, 80), jsonb_typeof(p_details)
      using errcode = 'QF001', hint = 'name what was done and who did it in 1 to 512 bytes; details are an object';
  end if;
  insert into fairqueue.fq_audit (at, queue, who, what, channel, message_id, details)
  select fairqueue.fq_now(), p_queue, v_by, p_what, p_channel, m.id, p_details
  from unnest(coalesce(p_message_ids, array[null]::bigint[])) m(id);
end
$$;
