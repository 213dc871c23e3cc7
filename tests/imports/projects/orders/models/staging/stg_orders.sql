with source as (
    select * from {{ source('raw', 'orders') }}
),
renamed as (
    select
        id as order_id,
        customer as customer_id,
        status,
        placed as placed_at,
        cast(placed as date) as day,
        date_trunc('month', placed) as month,
        extract(dow from placed) as weekday,
        strftime(placed, '%Y-%m (%a)') as week,
        cast(discount * 100 as integer) as discount_percent
    from source
)
select * from renamed
