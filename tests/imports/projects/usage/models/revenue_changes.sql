with changes as (
    select *,
        coalesce(lag(amount) over (partition by person order by month), 0) as before,
        min(case when amount > 0 then month end) over (partition by person) as first_month,
        amount > 0 as is_active,
        coalesce(lag(amount > 0) over (partition by person order by month), false) as was_active
    from {{ ref('revenue_by_month') }}
)
select *, amount - before as change,
    case when month = first_month then 'new'
         when not is_active and was_active then 'churn'
         when is_active and not was_active then 'back'
         when amount > before then 'up' when amount < before then 'down' end as category,
    least(amount, before) as renewed
from changes
