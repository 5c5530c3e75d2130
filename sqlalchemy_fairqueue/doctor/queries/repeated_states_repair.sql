-- Keep the newest of several state rows of a channel.
delete from fairqueue.fq_channel_state s
where s.ctid <> (
  select n.ctid
  from fairqueue.fq_channel_state n
  where n.channel_id = s.channel_id
  order by n.row_version desc, n.ctid desc
  limit 1
)
