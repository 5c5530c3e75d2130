-- fq_refusal: why a transaction must not commit with an outcome, as a JSON object: outcome; ordinal, of the message in
-- its enqueue; message_ids, ascending; for 'full' max_backlog; for 'lost' holder: the consumer that has leased the first
-- message now, or null.
-- Guarantees: as the statement that calls it sees it. Locks: none.
-- Index: fq_channel_queue_name_key, fq_channel_state_newest_ix, fq_message_pkey, fq_channel_pkey, fq_lease_pkey.
-- Errors: QF001 for another outcome than 'duplicate', 'full' and 'lost'; QF007.
create function fairqueue.fq_refusal(
  p_outcome text, p_queue text, p_channel text, p_ordinal integer, p_message_ids bigint[]
)
returns jsonb
language plpgsql
stable
security definer
as $$
declare
  v_channels text[] := case when p_channel is not null then array[p_channel] end;
  v_ids bigint[] := (select array_agg(i order by i) from unnest(p_message_ids) i where i is not null);
  v_detail jsonb := jsonb_build_object('outcome', p_outcome, 'ordinal', p_ordinal, 'message_ids', v_ids);
begin
  -- The kinds of grants that allow the call whose outcome it is.
  perform fairqueue.fq_check_grant(array['producer', 'consumer', 'loader']::text[], p_queue, v_channels);
  case p_outcome
    when 'duplicate' then
      return v_detail;
    when 'full' then
      return v_detail || jsonb_build_object('max_backlog', (
        select s.max_backlog
        from fairqueue.fq_find_channel(p_queue, p_channel) c
        cross join lateral fairqueue.fq_newest_state(c.id::bigint) s
      ));
    when 'lost' then
      return v_detail || jsonb_build_object('holder', (
        select l.consumer
        from fairqueue.fq_message m
        join fairqueue.fq_lease l on l.id = m.lease_id
        where m.id = v_ids[1]
          and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
      ));
    else
      raise exception 'outcome % is none that a transaction fails for', quote_nullable(left(p_outcome, 80))
        using errcode = 'QF001', hint = 'give duplicate, full or lost';
  end case;
end
$$;
