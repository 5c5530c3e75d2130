-- fq_lock_holders: lock the messages that have keys, p_keys of the channels p_channel_ids (null: none), and p_hold,
-- before they are replaced: all at once by id, so that transactions that settle or cancel messages and those that
-- replace them never wait for each other.
-- Guarantees: until the transaction ends nobody else ends them, or takes their keys. One that has ended before it was
-- locked leaves its key free, which must not be waited for while the others are held: QF099. With p_is_last it is
-- passed over.
-- Locks: as fq_lock_messages. Index: fq_message_dedupe_key, fq_message_pkey. Errors: QF099; 40001.
-- Its callers set how its statements are planned: to set it again would take longer than the call.
create function fairqueue.fq_lock_holders(
  p_channel_ids bigint[], p_keys text[], p_hold bigint[], p_is_last boolean
)
returns void
language plpgsql
volatile
as $$
declare
  v_holders bigint[];
  v_held bigint[];
begin
  for v_round in 1..2 loop
    v_holders := array(
      select h.id
      from unnest(p_channel_ids, p_keys) with ordinality u(channel_id, key, ord)
      left join lateral (
        select m.id
        from fairqueue.fq_message m
        where m.channel_id = u.channel_id
          and m.dedupe_key = u.key
        limit 1
      ) h on true
      where u.key is not null
      order by u.ord
    );
    if not p_is_last and (array_position(v_holders, null) > 0 or v_holders <> v_held) then
      raise exception using errcode = 'QF099', message = 'a message to replace has ended';
    end if;
    exit when v_round = 2;
    v_held := v_holders;
    perform fairqueue.fq_lock_messages((p_hold || v_held)::bigint[]);
    exit when p_is_last;
  end loop;
end
$$;
