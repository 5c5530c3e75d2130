-- fq_lock_round: lock the row of a duty of the housekeeping in fq_round, for the call that does it; a missing row is
-- made. False: another transaction does it.
-- Guarantees: until the transaction ends nobody else does the duty.
-- Locks: the row, for update, skip locked; waits for who makes it just now. Index: fq_round_pkey. Errors: none.
create function fairqueue.fq_lock_round(p_duty text)
returns boolean
language plpgsql
as $$
begin
  perform
  from fairqueue.fq_round f
  where f.duty = p_duty
  for update skip locked;
  if found then
    return true;
  end if;
  insert into fairqueue.fq_round (duty)
  select p_duty
  where not exists (select from fairqueue.fq_round f where f.duty = p_duty)
  on conflict (duty) do nothing;
  return found;
end
$$;
