"""DuckDB: CSV in, Parquet out: the sales of a shop, whose newest row of an order is the one in the last file.

python duckdb_shop.py OUT FOLDER
"""

import sys

import duckdb

out, folder = sys.argv[1:]
duckdb.execute("set preserve_insertion_order = false")
duckdb.execute(f"""
    copy (
        with orders as (
            select id, arg_max(store, filename) as store, arg_max(status, filename) as status, arg_max(day, filename) as day
            from read_csv('{folder}/orders/*.csv', filename = true,
                columns = {{'id': 'bigint', 'store': 'bigint', 'status': 'varchar', 'day': 'bigint'}})
            group by id
        ),
        items as (
            from read_csv('{folder}/items/*.csv', columns = {{'order_id': 'bigint', 'sku': 'bigint', 'amount': 'decimal(9, 2)'}})
        )
        select store, day, count(distinct id) as orders, count(*) as items, sum(amount) as amount
        from orders join items on order_id = id
        where status <> 'returned'
        group by store, day
    ) to '{out}' (format parquet)
""")
