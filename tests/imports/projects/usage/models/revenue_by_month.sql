with months as (
    select cast(date '2024-01-01' + cast(row_number() over (order by n) - 1 as bigint) * interval 1 month as date) as month from range(6) as t(n)
),
active as (
    select person, min(month) as first_month, max(month) as last_month from {{ source('app', 'plans') }} where amount > 0 group by 1
),
spine as (
    select a.person, m.month from active a join months m on m.month >= a.first_month and m.month <= a.last_month
)
select s.person, s.month, coalesce(p.amount, 0) as amount
from spine s left join (
    select person, month, sum(amount) as amount from {{ source('app', 'plans') }} group by all
) p on p.person is not distinct from s.person and p.month = s.month
