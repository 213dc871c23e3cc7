select id, count(distinct owner) as owners, count(*) filter (where dbt_valid_to is null) as open from {{ ref('owner_history') }} group by id
