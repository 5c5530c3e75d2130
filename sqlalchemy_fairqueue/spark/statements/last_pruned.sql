-- The newest entry of pruned rows.
select coalesce(max(p.id), 0) from {schema}.fq_pruned_history p
