with gaps as (
    select *, moment - lag(moment) over w > interval 30 minute as is_new
    from {{ ref('clean_events') }}
    window w as (partition by person order by moment, id)
),
numbered as (
    select *, sum(case when is_new or is_new is null then 1 else 0 end) over (partition by person order by moment, id) as session
    from gaps
)
select
    person, session, min(moment) as began, max(moment) as ended,
    date_diff('minute', min(moment), max(moment)) as minutes,
    count(*) as events, sum(value) as value, list(kind order by moment, id) as kinds,
    first(kind order by moment, id) as first_kind
from numbered
group by person, session
