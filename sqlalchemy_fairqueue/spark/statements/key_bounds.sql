-- The least and the greatest key. Rows may come and go before they are read: the keys decide only how evenly the rows
-- are split among tasks.
select min({key}), max({key}) from {source}
