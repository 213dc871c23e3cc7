select order_id, count(*) as payments
from {{ ref('stg_payments') }}
where method = 'card'
group by order_id
having count(*) > 2
