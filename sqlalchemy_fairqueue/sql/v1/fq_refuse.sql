-- fq_refuse: fail the transaction of an enqueue or a settlement, because of an outcome that it must not commit with:
-- for callers that send the statement and COMMIT together, and so cannot look at the outcome in between. p_fails false:
-- return the detail of the error instead, a JSON object: outcome; ordinal, of the message in its enqueue; message_ids,
-- ascending; for 'full' max_backlog; for 'lost' holder: the consumer that has leased the first message now, or null.
-- Guarantees: as the statement that calls it sees it. Locks: none.
-- Index: fq_channel_queue_name_key, fq_channel_state_newest_ix, fq_message_pkey, fq_channel_pkey, fq_lease_pkey.
-- Errors: QF010; QF001 for another outcome than 'duplicate', 'full' and 'lost'; QF007.
create function fairqueue.fq_refuse(
  p_outcome text, p_queue text, p_channel text, p_ordinal integer, p_message_ids bigint[], p_fails boolean default true
)
returns text
language plpgsql
security definer
as $$
declare
  v_channels text[] := case when p_channel is not null then array[p_channel] end;
  v_ids bigint[] := (select array_agg(i order by i) from unnest(p_message_ids) i where i is not null);
  v_detail jsonb := jsonb_build_object('outcome', p_outcome, 'ordinal', p_ordinal, 'message_ids', v_ids);
begin
  -- The kinds of grants that allow the call whose outcome it is.
  perform fairqueue.fq_check_grant(array['producer', 'consumer', 'loader']::text[], p_queue, v_channels);
  if p_outcome = 'full' then
    v_detail := v_detail || jsonb_build_object('max_backlog', (
      select s.max_backlog
      from fairqueue.fq_find_channel(p_queue, p_channel) c
      cross join lateral fairqueue.fq_newest_state(c.id::bigint) s
    ));
  elsif p_outcome = 'lost' then
    v_detail := v_detail || jsonb_build_object('holder', (
      select l.consumer
      from fairqueue.fq_message m
      join fairqueue.fq_lease l on l.id = m.lease_id
      where m.id = v_ids[1]
        and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
    ));
  elsif p_outcome is distinct from 'duplicate' then
    raise exception 'outcome % is none that a transaction fails for', quote_nullable(left(p_outcome, 80))
      using errcode = 'QF001', hint = 'give duplicate, full or lost';
  end if;
  if p_fails then
    raise exception 'the transaction cannot be committed, an outcome is %', quote_literal(p_outcome)
      using errcode = 'QF010', detail = v_detail::text, hint = 'roll back';
  end if;
  return v_detail::text;
end
$$;
