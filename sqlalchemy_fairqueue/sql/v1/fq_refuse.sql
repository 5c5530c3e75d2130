-- fq_refuse: fail the transaction of an enqueue or a settlement, because of an outcome that it must not commit with:
-- for callers that send the statement and COMMIT together, and so cannot look at the outcome in between.
-- Guarantees: it never returns. The error's detail is a JSON object: outcome; ordinal, of the message in its enqueue;
-- message_ids, ascending; for 'full' max_backlog; for 'lost' holder: the consumer that has leased the first message
-- now, or null.
-- Locks: none. Index: as fq_max_backlog and fq_holder, fq_message_pkey, fq_channel_pkey.
-- Errors: QF010 for the outcomes 'duplicate', 'full' and 'lost'; QF001 for another; QF007.
create function fairqueue.fq_refuse(
  p_outcome text, p_queue text, p_channel text, p_ordinal integer, p_message_ids bigint[]
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
  case p_outcome
    when 'duplicate' then
      null;
    when 'full' then
      v_detail := v_detail || jsonb_build_object('max_backlog', fairqueue.fq_max_backlog(p_queue, p_channel));
    when 'lost' then
      v_detail := v_detail || jsonb_build_object(
        'holder', (
          select fairqueue.fq_holder(m.id)
          from fairqueue.fq_message m
          where m.id = v_ids[1]
            and (select c.queue from fairqueue.fq_channel c where c.id = m.channel_id) = p_queue
        )
      );
    else
      raise exception 'outcome % is none that a transaction fails for', quote_nullable(left(p_outcome, 80))
        using errcode = 'QF001', hint = 'give duplicate, full or lost';
  end case;
  raise exception 'the transaction cannot be committed, an outcome is %', quote_literal(p_outcome)
    using errcode = 'QF010', detail = v_detail::text, hint = 'roll back';
end
$$;
