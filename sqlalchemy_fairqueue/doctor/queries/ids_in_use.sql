-- The greatest ids that messages, channels and signals have had, as far as rows tell: one row, null if there is none.
-- Dead letters keep the ids of their messages, and channels the id of the last signal that was heard.
select
  greatest(
    (select max(m.id) from fairqueue.fq_message m),
    (select max(d.message_id) from fairqueue.fq_dead_letter d)
  ) as fq_message,
  (select max(c.id) from fairqueue.fq_channel c) as fq_channel,
  greatest(
    (select max(s.id) from fairqueue.fq_signal s),
    (select max(s.heard_id) from fairqueue.fq_channel_state s)
  ) as fq_signal
