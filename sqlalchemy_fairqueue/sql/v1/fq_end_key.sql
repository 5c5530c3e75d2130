-- fq_end_key: begin the period of a key that counts from the end of its message. A trigger of fq_message calls it for
-- each such message that is deleted, however that happens.
-- Guarantees: the period begins with the transaction that ends the message, and not if that rolls back.
-- Locks: the row of the key, which nobody else writes before the message has ended. Index: fq_key_period_message_ix.
-- Errors: none.
create function fairqueue.fq_end_key()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
  update fairqueue.fq_key_period k
  set expires_at = fairqueue.fq_now() + k.unique_for
  where k.message_id = old.id
    and k.expires_at is null;
  return null;
end
$$;
