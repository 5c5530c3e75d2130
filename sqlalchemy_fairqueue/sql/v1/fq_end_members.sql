-- fq_end_members: note the ends of members of groups that a consumer held and that were not cancelled, in arrays of one
-- length: each as failed, or as done. complete and bury call it in the transaction that ends them.
-- Guarantees: one note a group and call, however many members, so that a batch costs an insert and not one for each.
-- Those that nobody held, or that were cancelled, are noted by the trigger of fq_message.
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
