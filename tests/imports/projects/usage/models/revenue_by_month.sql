with months as (
    select cast(m as date) as month from generate_series(date '2024-01-01', date '2024-06-01', interval 1 month) as t(m)
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
