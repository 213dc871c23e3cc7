select
    id as customer_id,
    trim(name) as name,
    split_part(name, ' ', 1) as first_name,
    lower(email) as email,
    regexp_extract(email, '@(.*)$', 1) as domain,
    coalesce(upper(country), 'XX') as country,
    joined,
    {{ key_of(['id', 'name', 'joined']) }} as customer_key
from {{ source('raw', 'customers') }}
