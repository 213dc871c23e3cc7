select
    o.month,
    coalesce(c.country, 'all') as country,
    grouping(c.country) as level,
    sum(f.amount) as amount,
    sum(f.amount * n.vat / (100 + n.vat)) as tax,
    median(cast(f.amount as double)) as middle
from {{ ref('stg_orders') }} o
join {{ ref('fct_orders') }} f using (order_id)
join {{ ref('stg_customers') }} c on c.customer_id = o.customer_id
left join {{ source('own', 'countries') }} n on n.code = lower(c.country)
where f.status is distinct from 'returned'
group by rollup (o.month, c.country)
having sum(f.amount) > 0
