"""The library, published designs and peers under the same workloads, told in one table and one page."""
