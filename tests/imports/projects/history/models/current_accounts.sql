select a.id, a.owner, a.tier, count(i.invoice_id) as invoices, sum(i.amount) as amount
from {{ ref('account_history') }} a
left join {{ ref('invoices_with_tier') }} i on i.account = a.id and i.tier = a.tier
where a.dbt_valid_to is null
group by 1, 2, 3
