-- About the least and the greatest key: they decide only how evenly rows are split among tasks.
select min({key}), max({key}) from {source}
