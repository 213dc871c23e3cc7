select customer_id, name from {{ ref('stg_customers') }} c
where not exists (select 1 from {{ ref('stg_orders') }} o where o.customer_id = c.customer_id)
union all
select customer_id, name from {{ ref('dim_customers') }} where lifetime_value = 0
