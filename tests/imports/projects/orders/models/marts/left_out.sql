select customer_id, median(amount) as middle from {{ ref('fct_orders') }} group by customer_id
