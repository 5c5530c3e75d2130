-- fq_check_search: refuse arguments of fq_find_messages that cannot be searched for.
-- Locks: none. Index: none. Errors: QF001 a bad limit or state, a key without a channel.
create function fairqueue.fq_check_search(
  p_channel text, p_state text, p_key text, p_limit integer, p_scan integer
)
returns void
language plpgsql
immutable
as $$
begin
  if p_limit is null or p_limit < 1 or p_scan is null or p_scan < 1 then
    raise exception 'fq_find_messages has limit %, scan %', p_limit, p_scan
      using errcode = 'QF001', hint = 'ask for 1 message or more, and let 1 or more be looked at';
  end if;
  if p_state not in ('leased', 'ready', 'scheduled') then
    raise exception 'fq_find_messages has state %', quote_literal(left(p_state, 80))
      using errcode = 'QF001', hint = 'ask for leased, ready or scheduled messages, or null for all';
  end if;
  if p_key is not null and p_channel is null then
    raise exception 'fq_find_messages has a key and no channel'
      using errcode = 'QF001', hint = 'a key belongs to a channel: name both';
  end if;
end
$$;
