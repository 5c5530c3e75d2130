-- A block that raises unless it is in the transaction of a guard.
do {body}
begin
  if current_setting('fairqueue.guard', true) is distinct from 'passed' then
    raise exception using errcode = 'QF004', message = {refusal};
  end if;
end
{body}
