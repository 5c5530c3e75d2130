-- fq_caller: the role that called a function of the installation, where current_user is already the owner.
-- Guarantees: the role of SET ROLE, else the role of the session. The planner inlines it, since a call would cost more
-- than what it does. Locks: none. Index: none. Errors: none.
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
