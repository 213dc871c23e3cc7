select cast(d.day as date) as day, count(o.order_id) as orders, coalesce(sum(o.amount), 0) as amount
from generate_series(date '{{ var("first_day") }}', date '2024-03-31', interval 1 day) as d(day)
left join {{ ref('fct_orders') }} o on o.day = cast(d.day as date)
group by 1
