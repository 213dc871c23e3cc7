select
    id, person,
    row_number() over (partition by person order by value desc, id) as number,
    rank() over (order by value desc) as place,
    dense_rank() over (partition by kind order by person) as dense,
    percent_rank() over (partition by kind order by value, id) as percent,
    cume_dist() over (order by cast(moment as date)) as cumulative,
    ntile(4) over (order by id) as quartile,
    lag(value, 2, 0) over (partition by person order by id) as two_before,
    lead(moment) over (partition by person order by moment, id) as next_at,
    moment - lag(moment) over (partition by person order by moment, id) as gap
from {{ ref('clean_events') }}
