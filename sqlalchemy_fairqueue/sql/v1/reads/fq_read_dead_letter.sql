-- fq_read_dead_letter: the texts of a dead letter, and if p_whole also its content, headers and keys. If they cannot be
-- read, all are null, and unreadable says why: the read is tried in a subtransaction.
-- Guarantees: what is stored apart (TOAST) is read here, and not when the row is sent. Locks: none.
-- Index: fq_dead_letter_pkey. Errors: none of the row's.
create function fairqueue.fq_read_dead_letter(
  p_message_id bigint, p_whole boolean,
  out kind text, out reason text, out error text, out content bytea, out headers text, out key text,
  out ordering_key text, out unreadable text
)
language plpgsql
stable
as $$
begin
  select d.kind || '', d.reason || '', d.error || '', case when p_whole then d.content || ''::bytea end,
    case when p_whole then d.headers::text end, d.key, d.ordering_key || ''
  into kind, reason, error, content, headers, key, ordering_key
  from fairqueue.fq_dead_letter d
  where d.message_id = p_message_id;
exception
  when data_exception or program_limit_exceeded or internal_error then
    unreadable := left(sqlerrm, 1000);
end
$$;
