-- The messages of pgoutput in a replication slot, which stays where it is.
copy (
  select p.data
  from pg_catalog.pg_logical_slot_peek_binary_changes(
    %(slot)s, %(upto)s::text::pg_lsn, %(changes)s::integer, 'proto_version', '1', 'publication_names', %(publications)s
  ) p
)
to stdout (format binary)
