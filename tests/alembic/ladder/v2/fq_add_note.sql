-- fq_add_note: write a note on messages, in the caller's transaction.
-- Guarantees: takes effect with the caller's commit. Locks: the messages. Index: fq_message_pkey. Errors: none.
create function fairqueue.fq_add_note(p_ids bigint[], p_note text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  update fairqueue.fq_message m
  set note = p_note
  where m.id = any (p_ids);
  insert into fairqueue.fq_annotation (message_id, note)
  select u.id, p_note
  from unnest(p_ids) u(id);
end
$$;
