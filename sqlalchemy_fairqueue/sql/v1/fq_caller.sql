-- fq_caller: the role that called a function of the installation, where current_user is already the owner.
-- Guarantees: the role of SET ROLE, else the role of the session. Planned into the expression that calls it: a call of
-- its own would cost more than its run. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_caller()
returns name
language sql
stable parallel safe
as $$
  select case
    when pg_catalog.current_setting('role'::text) operator(pg_catalog.=) 'none'::text then session_user
    else pg_catalog.current_setting('role'::text)::name
  end
$$;
