select person, kind, events from (
    select person, kind, count(*) as events,
        rank() over (partition by person order by count(*) desc, kind) as place
    from {{ ref('clean_events') }} group by person, kind
) where place <= 2
