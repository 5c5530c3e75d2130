-- fq_hold_back: find the first messages of channels that may be taken, from their heads on: up to p_depth of each that are
-- due, with no ordering key, or the first of theirs. p_skip: messages to pass over. Messages that come after others of
-- their key are put at the end of their channel, until fq_let_go puts them back; a signal of each key tells the dispatcher
-- to look, for what was found may have changed by then.
-- Returns ids: the messages that may be taken; rooms: by channel, how many these are; where there are none, 1 if nothing
-- else is due, and else 0. The caller has the states of the channels locked.
-- Locks: the messages that are put back, for no key update, skip locked. Index: fq_message_ready_ix; those of
-- fq_goes_first; rows by ctid. Errors: none.
create function fairqueue.fq_hold_back(
  p_queue text, p_channels bigint[], p_heads_at bigint[], p_head_ids bigint[], p_depth integer, p_skip bigint[],
  p_now bigint, out ids bigint[], out rooms integer[]
)
language plpgsql
as $$
declare
  c_last constant bigint := 9223372036854775807;
  v_depth integer := greatest(p_depth, 20);
  v_held boolean;
begin
  for v_pass in 1..20 loop
    with read as materialized (
      select k.ord, k.channel_id, m.row, m.id, m.ordering_key,
        m.ordering_key is null
          or fairqueue.fq_goes_first(k.channel_id::bigint, m.ordering_key::text, m.id::bigint) as goes
      from unnest(p_channels, p_heads_at, p_head_ids) with ordinality k(channel_id, head_at, head_id, ord)
      left join lateral (
        select x.ctid as row, x.id, x.ordering_key
        from fairqueue.fq_message x
        where x.channel_id = k.channel_id
          and x.lease_id is null
          and (x.dequeue_at, x.id) >= (k.head_at, k.head_id)
          and x.dequeue_at <= p_now
          and x.id <> all (p_skip)
        order by x.channel_id, x.dequeue_at, x.id
        limit v_depth
      ) m on true
    ),
    locked as materialized (
      select x.ctid as row, r.channel_id
      from read r
      join fairqueue.fq_message x
        on x.ctid = r.row
        and x.id is not distinct from r.id
        and num_nulls(x.lease_id) = 1
      where not r.goes
      for no key update of x skip locked
    ),
    held as (
      update fairqueue.fq_message m
      set dequeue_at = c_last
      from locked l
      where m.ctid = l.row
      returning m.channel_id, m.ordering_key
    ),
    told as (
      insert into fairqueue.fq_signal (queue, channel_id, ordering_key)
      select distinct p_queue, h.channel_id, h.ordering_key
      from held h
    )
    select
      (select array_agg(r.id) from read r where r.goes and r.id is not null),
      (
        select array_agg(c.room order by c.ord)
        from (
          select r.ord,
            case
              when count(r.id) filter (where r.goes) > 0 then count(r.id) filter (where r.goes)
              when count(r.id) < v_depth then 1
              else 0
            end::integer as room
          from read r
          group by r.ord
        ) c
      ),
      exists (select from held)
    into ids, rooms, v_held;
    exit when 0 <> all (rooms) or not v_held;
  end loop;
end
$$;
