select i.*, h.tier, h.owner
from {{ ref('stg_invoices') }} i
left join {{ ref('account_history') }} h
    on h.id = i.account and i.moment >= h.dbt_valid_from and i.moment < coalesce(h.dbt_valid_to, timestamp '9999-12-31')
