-- fq_headers_fit: whether headers have at most 65,536 bytes as text.
-- Guarantees: numbers of hundreds of digits are not written out to find out: a few kB can stand for a gigabyte of text.
-- One expression, which the planner inlines. Locks: none. Errors: none.
create function fairqueue.fq_headers_fit(p_headers jsonb)
returns boolean
language sql
stable parallel safe
as $$
  select case
    -- a text has at least a tenth of the bytes of its jsonb; chr(36) is a dollar sign, which no body may hold
    when pg_catalog.pg_column_size(p_headers) > 655360 then false
    when pg_catalog.pg_column_size(p_headers) > 1000
      and pg_catalog.jsonb_path_exists(
        p_headers,
        (
          pg_catalog.chr(36) operator(pg_catalog.||)
          '.** ? (@ > 1e300 || @ < -1e300 || (@ < 1e-300 && @ > -1e-300 && @ != 0))'
        )::pg_catalog.jsonpath,
        '{}'::pg_catalog.jsonb, false
      )
    then false
    else pg_catalog.octet_length(p_headers::pg_catalog.text) operator(pg_catalog.<=) 65536
  end
$$;
