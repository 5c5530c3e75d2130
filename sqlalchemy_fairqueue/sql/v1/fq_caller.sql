-- fq_caller: the role that called a function of the installation: that of SET ROLE, else that of the session. In a
-- security definer function current_user is the owner.
-- Guarantees: the planner inlines it, since a call would cost more than what it does. Locks: none. Index: none. Errors:
-- none.
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
