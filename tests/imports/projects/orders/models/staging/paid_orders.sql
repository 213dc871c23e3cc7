{{ config(materialized='ephemeral') }}
select
    order_id,
    {% for method in var('methods') -%}
    sum(case when method = '{{ method }}' then amount else 0 end) as {{ method }}_amount,
    {% endfor -%}
    sum(amount) as amount,
    count(distinct method) as methods
from {{ ref('stg_payments') }}
group by 1
