select max(middle) as highest from {{ ref('left_out') }}
