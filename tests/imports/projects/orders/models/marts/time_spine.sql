select cast(day as date) as date_day from generate_series(date '2024-01-01', date '2024-01-31', interval 1 day) as t(day)
