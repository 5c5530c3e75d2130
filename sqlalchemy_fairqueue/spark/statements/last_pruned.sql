-- The newest entry of fq_pruned_history.
select coalesce(max(p.id), 0) from {schema}.fq_pruned_history p
