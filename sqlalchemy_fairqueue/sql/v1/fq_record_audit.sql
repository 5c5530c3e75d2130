-- fq_record_audit: record that somebody did p_what to a queue (null: to the installation), to its channel p_channel, or
-- to the messages p_message_ids, a row for each, in the caller's transaction. p_by: who (null: the caller's role);
-- p_details: a JSON object.
-- Guarantees: the rows are there if and only if the caller's transaction commits.
-- Locks: none. Index: none. Errors: QF001 bad name, details or id; QF007.
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
  perform fairqueue.fq_check_names('{channel}'::text[], array[p_channel]::text[])
  where p_channel is not null;
  perform fairqueue.fq_check_names('{what,name}'::text[], array[p_what, v_by]::text[]);
  if jsonb_typeof(p_details) <> 'object' or not fairqueue.fq_headers_fit(p_details) or 1 > any (p_message_ids) then
    raise exception 'fq_record_audit has details of type %, message ids from %',
        jsonb_typeof(p_details), (select min(i) from unnest(p_message_ids) i)
      using errcode = 'QF001', hint = 'give a JSON object of at most 65,536 bytes, or null, and ids from 1 on';
  end if;
  insert into fairqueue.fq_audit (at, queue, who, what, channel, message_id, details)
  select fairqueue.fq_now(), p_queue, v_by, p_what, p_channel, m.id, p_details
  from unnest(coalesce(p_message_ids, array[null]::bigint[])) m(id);
end
$$;
