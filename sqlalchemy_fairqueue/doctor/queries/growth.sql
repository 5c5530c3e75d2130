-- How the largest tables grew within the last day, the one that grew most first.
select name, bytes, grown, period
from fairqueue.fq_growth()
order by grown desc, name
