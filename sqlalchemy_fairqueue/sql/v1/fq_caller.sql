-- fq_caller: the role that called a function of the installation, where current_user is already the owner.
-- Guarantees: the role of SET ROLE, else the role of the session. Locks: none. Index: none. Errors: none.
create function fairqueue.fq_caller()
returns name
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
begin
  return coalesce(nullif(current_setting('role'), 'none'), session_user::text)::name;
end
$$;
