{{ config(materialized='view') }}
select * from {{ ref('fct_orders') }} where status in ('paid', 'returned') and amount > 0
