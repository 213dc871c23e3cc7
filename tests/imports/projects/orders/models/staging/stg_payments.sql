select id as payment_id, order_id, method, {{ euros('cents') }} as amount, cents
from {{ source('raw', 'payments') }}
