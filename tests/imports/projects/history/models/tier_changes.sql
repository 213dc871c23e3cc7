select id, lag(tier) over w as from_tier, tier as to_tier, dbt_valid_from as moment,
    date_diff('day', dbt_valid_from, lead(dbt_valid_from) over w) as days, row_number() over w as version
from {{ ref('account_history') }}
window w as (partition by id order by dbt_valid_from, dbt_scd_id)
