select id, person, moment, kind, value from {{ source('app', 'events') }}
where person is not null and moment is not null
qualify row_number() over (partition by person, moment order by id desc) = 1
