select
    id, person, kind,
    sum(value) over (partition by person order by id) as running,
    avg(value) over (partition by person order by id rows between 2 preceding and current row) as moving,
    count(*) over (partition by kind) as of_kind,
    value / nullif(sum(value) over (partition by kind), 0) as share,
    max(value) over (order by id rows between unbounded preceding and 1 preceding) as best_before,
    first_value(kind) over (partition by person order by moment nulls last, id) as first_kind,
    last_value(kind) over (partition by person order by moment, id rows between unbounded preceding and unbounded following) as last_kind,
    nth_value(id, 2) over (partition by person order by id) as second
from {{ ref('clean_events') }}
