with per_customer as (
    select
        customer_id,
        min(day) as first_order,
        max(day) as last_order,
        count(*) as orders,
        sum(amount) as lifetime_value,
        avg(amount) as mean_amount,
        sum(amount) / count(*) as mean_by_hand,
        string_agg(status, ',' order by order_id) as statuses,
        count(*) filter (where status = 'returned') * 1.0 / count(*) as return_rate
    from {{ ref('fct_orders') }}
    group by all
)
select c.*, n.country as country_name, n.vat, p.* exclude (customer_id)
from {{ ref('stg_customers') }} c
left join per_customer p using (customer_id)
left join {{ ref('countries') }} n on lower(c.country) = n.code
