-- fq_check_grant: refuse a call that is outside of the bounds of its caller's grants. p_kinds: the kinds of grants that
-- allow the call; p_queue: its queue; p_channels: its channels (null: all of the queue).
-- Guarantees: the owner is never refused. Nor is a caller without grants of these kinds: its privileges on the function
-- decide. Verbs that are called for each message ask themselves whether the caller is the owner, which costs less than
-- this call. If a caller has several grants, also by membership in other roles, each channel needs one that covers it.
-- No grant with bounds covers a p_queue of null.
-- Locks: none. Index: fq_grant_pkey. Errors: QF007.
create function fairqueue.fq_check_grant(p_kinds text[], p_queue text, p_channels text[] default null)
returns void
language plpgsql
stable
as $$
declare
  v_caller name := fairqueue.fq_caller();
  v_granted boolean;
  v_whole boolean;
  v_covered text[];
  v_refused text;
begin
  if pg_has_role(v_caller, current_user, 'usage')
    or not exists (select from fairqueue.fq_grant g where num_nonnulls(g.queues, g.channels) > 0)
  then
    return;
  end if;
  select count(*) > 0,
    bool_or((g.queues is null or p_queue = any (g.queues)) is true and g.channels is null),
    array_agg(c.name) filter (where (g.queues is null or p_queue = any (g.queues)) is true)
  into v_granted, v_whole, v_covered
  from fairqueue.fq_grant g
  left join lateral unnest(g.channels) c(name) on true
  where g.kind = any (p_kinds)
    and pg_has_role(v_caller, g.role, 'usage');
  if not v_granted or v_whole then
    return;
  end if;
  if v_covered is not null then
    select n.name into v_refused
    from unnest(p_channels) n(name)
    where (n.name = any (v_covered)) is not true
    limit 1;
    if not found and p_channels is not null then
      return;
    end if;
  end if;
  raise exception 'role % is not granted % for queue % channel %',
    quote_ident(v_caller), array_to_string(p_kinds, ' or '),
    coalesce(quote_literal(left(p_queue, 80)), 'null'),
    coalesce(quote_literal(left(coalesce(v_refused, p_channels[1]), 80)), '(all)')
    using errcode = 'QF007',
      hint = 'let a migration widen the queues or channels of the grant: op.grant_' || 'fair' || 'queue(...)';
end
$$;
