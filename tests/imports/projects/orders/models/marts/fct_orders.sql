select
    o.order_id,
    o.customer_id,
    o.day,
    o.status,
    {% for method in var('methods') -%}
    p.{{ method }}_amount,
    {% endfor -%}
    coalesce(p.amount, 0) as amount,
    p.amount * o.discount_percent / 100 as discounted,
    case when p.amount > 50 then 'large' when p.amount is null then 'unpaid' else 'small' end as size,
    o.day - c.joined as days_since_joined,
    date_diff('month', c.joined, o.day) as months_since_joined
from {{ ref('stg_orders') }} as o
left join {{ ref('paid_orders') }} as p using (order_id)
left join {{ ref('stg_customers') }} as c on c.customer_id = o.customer_id
