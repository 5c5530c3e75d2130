-- A queue has one share of a shared limit, which is one live row.
create trigger fq_limit_share_single
before insert on fairqueue.fq_limit_share
for each row
execute function fairqueue.fq_check_limit_share();
