-- fq_hold_back: move messages that must wait for others of their ordering keys to the end of their channels, until
-- fq_let_go moves them back. p_ords: positions in p_channels of the channels to look at, from their heads on; p_depth:
-- how many due messages of each. Returns how many were moved, and whether there may be more.
-- Guarantees: at most c_most are moved: a long line of one key must not hold up a call. A signal of each key tells
-- the dispatcher to look again, since what was found may have changed by the commit. The caller has the state rows of
-- the channels locked.
-- Locks: the messages, for no key update, skip locked. Index: fq_message_ready_ix, fq_message_ordering_ix; rows by
-- ctid. Errors: none.
create function fairqueue.fq_hold_back(
  p_queue text, p_channels bigint[], p_heads_at bigint[], p_head_ids bigint[], p_ords integer[], p_depth integer,
  p_now bigint,
  out moved bigint, out has_more boolean
)
language plpgsql
as $$
declare
  c_most constant bigint := 1000;
begin
  with behind as materialized (
    select m.row, m.id
    from (select distinct o.ord from unnest(p_ords) o(ord)) k
    cross join lateral (
      select x.ctid as row, x.id, x.channel_id, x.ordering_key
      from fairqueue.fq_message x
      where x.channel_id = p_channels[k.ord]
        and x.lease_id is null
        and (x.dequeue_at, x.id) >= (p_heads_at[k.ord], p_head_ids[k.ord])
        and x.dequeue_at <= p_now
      order by x.channel_id, x.dequeue_at, x.id
      limit greatest(p_depth, 20)
    ) m
    cross join lateral fairqueue.fq_goes_first(m.channel_id, m.ordering_key, m.id) g
    where not g.goes
    limit c_most
  ),
  locked as materialized (
    select x.ctid as row
    from behind b
    join fairqueue.fq_message x
      on x.ctid = b.row
      and x.id is not distinct from b.id
      and num_nulls(x.lease_id) = 1
    for no key update of x skip locked
  ),
  held as (
    update fairqueue.fq_message m
    set dequeue_at = 9223372036854775807
    from locked l
    where m.ctid = l.row
    returning m.channel_id, m.ordering_key
  ),
  told as (
    insert into fairqueue.fq_signal (queue, channel_id, ordering_key)
    select distinct p_queue, h.channel_id, h.ordering_key
    from held h
  )
  select count(*), count(*) = c_most into moved, has_more
  from held h;
end
$$;
