-- Who but the owner may execute a function. If nothing was granted or revoked, that is PostgreSQL's own default.
(
      select coalesce(json_agg(json_build_object(
        'grantee', case a.grantee when 0 then 'public' else a.grantee::regrole::text end,
        'option', case when a.is_grantable then ' with grant option' else '' end) order by a.grantee), '[]')
      from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
      where a.grantee <> p.proowner)
