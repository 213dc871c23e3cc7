{{ config(materialized='incremental', unique_key='day') }}
select day, count(*) as orders, sum(amount) as amount, round(avg(amount), 6) as mean, max(placed_at) as latest
from {{ ref('fct_orders') }} join {{ ref('stg_orders') }} using (order_id, day)
{% if is_incremental() %}
where day >= (select max(day) from {{ this }})
{% endif %}
group by day
