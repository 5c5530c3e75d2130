-- fq_end_members: note that members of groups, which were leased and not cancelled, have failed (p_failed) or are done,
-- in the transaction that ends them. Arrays of one length. fq_end_message notes other ends.
-- Guarantees: one note a group and call, however many members, so that a batch does not cost an insert for each.
-- Locks: none. Index: fq_group_note_pkey. Errors: none.
create function fairqueue.fq_end_members(p_ids bigint[], p_group_ids uuid[], p_failed boolean)
returns void
language plpgsql
as $$
begin
  insert into fairqueue.fq_group_note (id, group_id, done, failed)
  select min(u.id), u.group_id, count(*) filter (where not p_failed), count(*) filter (where p_failed)
  from unnest(p_ids, p_group_ids) u(id, group_id)
  group by u.group_id;
end
$$;
