"""Random expressions of Spark's: operators, casts, functions, aggregates and windows over columns of every type, nested two deep."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

FORMS = {
    "integer": """
        i ; n ; k ; 3 ; -2 ; 0 ; {integer} + {integer} ; {integer} - {integer} ; {integer} * 2 ; -{integer} ;
        {integer} % 3 ; {integer} % -3 ; mod({integer}, 3) ; {integer} div 3 ; abs({integer}) ; {integer} & 3 ;
        {integer} | {integer} ; ~{integer} ; length({text}) ; char_length({text}) ; octet_length({text}) ;
        instr({text}, 'b') ; locate('b', {text}) ; position('b' in {text}) ; ascii({text}) ; year({date}) ;
        month({date}) ; day({date}) ; dayofyear({date}) ; weekofyear({date}) ; quarter({date}) ; hour({local}) ;
        minute({local}) ; year({local}) ; month({instant}) ; hour({instant}) ; extract(year from {date}) ;
        date_part('month', {date}) ; cast({integer} as int) ; cast({decimal} as int) ; cast({float} as bigint) ;
        cast({bool} as int) ; try_cast({text} as int) ; try_cast({text} as bigint) ; greatest({integer}, {integer})
        ; least({integer}, {integer}) ; coalesce({integer}, {integer}) ; nullif({integer}, {integer}) ;
        ifnull({integer}, 1) ; nvl({integer}, {integer}) ; if({bool}, {integer}, {integer}) ; case when {bool} then
        {integer} else {integer} end ; case {integer} when 1 then 2 end ; bit_count({integer}) ; sign({integer}) ;
        round({integer}, -1) ; round({integer}) ; floor({float}) ; ceil({float}) ; floor({decimal}) ;
        ceil({decimal}) ; size({list}) ; cardinality({list}) ; {list}[0] ; {list}[1] ; array_max({list}) ;
        array_min({list}) ; datediff({date}, {date}) ; date_diff({date}, {date}) ; array_position({list}, {integer})
        ; unix_date({date}) ; dayofweek({date}) ; weekday({date}) ; months_between({date}, {date}) ;
        try_add({integer}, {integer}) ; try_subtract({integer}, {integer}) ; try_multiply({integer}, 3) ;
        crc32({text}) ; extract(second from {local}) ; extract(week from {date}) ; isnull({integer}) ;
        shiftleft({integer}, 2) ; {integer} << 1 ; width_bucket({float}, 0, 10, 5) ; element_at({list}, 1) ;
        levenshtein({text}, {text}) ; pmod({integer}, 3) ; hash({integer}) ; element_at({list}, -1) ;
        bigint({integer}) ; int({decimal}) ; cast({text} as int) ; bit_length({text}) ; find_in_set({text}, 'a,b')
    """,
    "float": """
        f ; 1e0 ; {float} + {float} ; {float} - {float} ; {float} * {float} ; {float} / {float} ; {integer} /
        {integer} ; {float} / 2 ; -{float} ; abs({float}) ; round({float}) ; round({float}, 1) ; round({float}, 2) ;
        bround({float}) ; bround({float}, 1) ; sqrt(abs({float})) ; power({integer}, 2) ; pow({float}, 2) ;
        exp({float} / 1e9) ; ln(abs({float}) + 1) ; log10(abs({float}) + 1) ; log2(abs({float}) + 1) ; log(2,
        abs({float}) + 1) ; log(abs({float}) + 1) ; log1p(abs({float})) ; cbrt({float}) ; sin({float}) ;
        atan2({float}, {float}) ; degrees({float}) ; radians({float}) ; cast({integer} as double) ; cast({decimal}
        as double) ; cast({integer} as float) ; cast({float} as float) ; try_cast({text} as double) ;
        greatest({float}, {float}) ; least({float}, {integer}) ; coalesce({float}, {integer}) ; nullif({float}, 0) ;
        if({bool}, {float}, {integer}) ; case when {bool} then {float} end ; {float} + {integer} ; {decimal} +
        {float} ; {decimal} * {float} ; {float} % 2 ; try_divide({integer}, {integer}) ; try_divide({float},
        {integer}) ; sign({float}) ; signum({float}) ; nanvl({float}, 1) ; unix_timestamp({instant}) ;
        double({integer}) ; hypot({float}, 1) ; e() ; pi() ; rint({float}) ; cast({text} as double) ; {integer} /
        {float} ; {integer} / 4 ; cast({bool} as double) ; positive({float}) ; float({integer})
    """,
    "decimal": """
        m ; w ; 1.5 ; 0.25 ; {decimal} + {decimal} ; {decimal} - {decimal} ; {decimal} * {decimal} ; {decimal} * 2 ;
        {decimal} / {decimal} ; {decimal} / 3 ; {decimal} / {integer} ; {integer} / {decimal} ; {decimal} +
        {integer} ; {decimal} - {integer} ; {decimal} * {integer} ; -{decimal} ; abs({decimal}) ; {decimal} % 3 ;
        {decimal} % {decimal} ; round({decimal}, 1) ; round({decimal}) ; round({decimal}, -1) ; cast({decimal} as
        decimal(12, 1)) ; cast({float} as decimal(12, 2)) ; cast({integer} as decimal(12, 2)) ; cast({decimal} as
        decimal(30, 10)) ; try_cast({text} as decimal(12, 2)) ; greatest({decimal}, {decimal}) ; least({decimal},
        {integer}) ; coalesce({decimal}, 0) ; coalesce({decimal}, {decimal}) ; nullif({decimal}, 0) ; if({bool},
        {decimal}, {integer}) ; case when {bool} then {decimal} else 0 end ; try_divide({decimal}, {integer}) ;
        try_divide({decimal}, {decimal}) ; sign({decimal}) ; bround({decimal}, 1) ; nvl({decimal}, {integer}) ;
        cast({text} as decimal(10, 2)) ; pmod({decimal}, 3)
    """,
    "text": """
        s ; r ; 'b' ; '' ; {text} || {text} ; concat({text}, {text}) ; concat_ws('-', {text}, {text}) ;
        lower({text}) ; upper({text}) ; ucase({text}) ; initcap({text}) ; trim({text}) ; ltrim({text}) ;
        rtrim({text}) ; btrim({text}) ; btrim({text}, 'a') ; trim(both 'a' from {text}) ; substring({text}, 2, 3) ;
        substring({text}, -2, 1) ; substr({text}, 2) ; substr({text}, -2) ; substring({text}, {integer} + 1) ;
        substring({text} from 2 for 2) ; left({text}, 2) ; right({text}, 2) ; left({text}, -1) ; right({text}, 0) ;
        replace({text}, 'b', 'X') ; replace({text}, 'b') ; replace({text}, '', 'x') ; reverse({text}) ;
        repeat({text}, 2) ; lpad({text}, 5, '*') ; rpad({text}, 5, '*') ; lpad({text}, 5) ; split_part({text}, ',',
        2) ; split_part({text}, ',', -1) ; regexp_extract({text}, '([a-z])([0-9])') ; regexp_extract({text},
        '[0-9]+', 0) ; regexp_extract({text}, '([a-z]+)([0-9]*)', 2) ; regexp_replace({text}, '[0-9]', '#') ;
        regexp_replace({text}, '([a-z])', '<$1>') ; regexp_substr({text}, '[0-9]+') ; translate({text}, 'ab', 'x') ;
        md5({text}) ; sha1({text}) ; sha2({text}, 256) ; hex({text}) ; hex({integer}) ; bin({integer}) ; chr(65) ;
        chr({integer} + 65) ; space(2) ; cast({integer} as string) ; cast({decimal} as string) ; cast({float} as
        string) ; cast({date} as string) ; cast({bool} as string) ; cast({local} as string) ; cast({instant} as
        string) ; coalesce({text}, 'x') ; coalesce({text}, {text}) ; nullif({text}, '') ; greatest({text}, {text}) ;
        least({text}, {text}) ; if({bool}, {text}, 'n') ; case when {bool} then {text} else '' end ; case {text}
        when 'a' then 'b' else 'c' end ; {texts}[0] ; {texts}[1] ; array_join({texts}, '-') ; date_format({date},
        'yyyy-MM') ; date_format({local}, 'yyyy-MM-dd HH:mm') ; string({integer}) ; overlay({text} placing 'x' from
        2) ; soundex({text}) ; base64({text}) ; substring_index({text}, ',', 1) ; dayname({date}) ;
        monthname({date}) ; element_at({texts}, 1) ; elt(1, {text}) ; typeof({integer}) ; ltrim('a', {text}) ;
        decode({integer}, 1, 'a', 'b') ; nvl2({text}, 'a', 'b') ; quote({text})
    """,
    "date": """
        d ; e ; date '2024-02-29' ; date_add({date}, 3) ; date_add({date}, {integer}) ; date_sub({date}, 3) ; {date}
        + 3 ; {date} - 3 ; {date} + interval 1 day ; {date} + interval 1 month ; {date} - interval 1 year ; {date} +
        interval '2' month ; add_months({date}, 1) ; add_months({date}, -1) ; last_day({date}) ; trunc({date},
        'month') ; trunc({date}, 'year') ; cast({local} as date) ; cast({instant} as date) ; to_date({text}) ;
        to_date({text}, 'yyyy-MM-dd') ; try_cast({text} as date) ; date({local}) ; make_date(2024, 3, 31) ;
        next_day({date}, 'monday') ; greatest({date}, {date}) ; least({date}, {date}) ; coalesce({date}, {date}) ;
        nullif({date}, {date}) ; if({bool}, {date}, {date}) ; case when {bool} then {date} end ; dateadd(day, 2,
        {date}) ; dateadd(month, 1, {date}) ; date_from_unix_date({integer}) ; cast({date} as date)
    """,
    "local": """
        t ; {local} + interval 1 day ; {local} + interval 1 month ; {local} - interval 36 hour ; {local} + interval
        '90' minute ; date_trunc('month', {local}) ; date_trunc('day', {local}) ; date_trunc('hour', {local}) ;
        date_trunc('week', {local}) ; cast({date} as timestamp_ntz) ; coalesce({local}, {local}) ; greatest({local},
        {local}) ; if({bool}, {local}, {local}) ; cast({instant} as timestamp_ntz)
    """,
    "instant": """
        z ; cast({local} as timestamp) ; cast({date} as timestamp) ; {instant} + interval 1 day ; {instant} +
        interval 1 month ; {instant} - interval 3 hour ; date_trunc('month', {instant}) ; date_trunc('day',
        {instant}) ; date_trunc('hour', {instant}) ; date_trunc('month', {date}) ; date_trunc('DAY', {date}) ;
        date_trunc('year', {instant}) ; date_trunc('quarter', {instant}) ; timestamp '2024-03-31 03:00:00' ;
        coalesce({instant}, {instant}) ; greatest({instant}, {instant}) ; to_timestamp({text}) ; timestamp({date}) ;
        timestampadd(hour, 2, {instant}) ; timestamp_seconds({integer}) ; from_utc_timestamp({instant},
        'Asia/Tokyo') ; to_utc_timestamp({instant}, 'Asia/Tokyo') ; cast({integer} as timestamp) ; if({bool},
        {instant}, {instant}) ; coalesce({instant}, {date}) ; date_trunc('week', {instant})
    """,
    "bool": """
        b ; true ; {integer} = {integer} ; {integer} <=> {integer} ; {integer} < {integer} ; {integer} <> {integer}
        ; {float} >= {float} ; {decimal} > {decimal} ; {decimal} = {integer} ; {float} = {decimal} ; {text} = {text}
        ; {text} < {text} ; {date} < {date} ; {date} = {local} ; {date} < {instant} ; {local} < {instant} ;
        {instant} = {instant} ; {bool} and {bool} ; {bool} or {bool} ; not {bool} ; {bool} = {bool} ; {integer} in
        (1, 2, {integer}) ; {text} in ('a', {text}) ; {integer} not in (1, null) ; {integer} between 1 and 5 ;
        startswith({text}, 'a') ; endswith({text}, 'b') ; contains({text}, {text}) ; {integer} is null ; {text} is
        not null ; isnotnull({text}) ; isnull({date}) ; isnan({float}) ; {bool} is true ; {bool} is not false ;
        {integer} is distinct from {integer} ; coalesce({bool}, false) ; cast({integer} as boolean) ; cast('true' as
        boolean) ; try_cast({text} as boolean) ; array_contains({list}, {integer}) ; {text} = {integer} ; {date} =
        {text} ; {date} = '2024-03-30' ; {date} > '2024-03-01' ; {local} > '2024-03-30 12:00:00' ; {instant} >
        '2024-03-31 03:00:00' ; if({bool}, {bool}, {bool}) ; {decimal} between 0 and {decimal} ;
        arrays_overlap({list}, {list}) ; {bool} <=> {bool} ; {integer} = '1' ; {date} between '2024-01-01' and
        '2024-06-01'
    """,
    "list": """
        array({integer}, {integer}) ; array({integer}, 7) ; array_sort({list}) ; sort_array({list}) ;
        array_distinct({list}) ; slice({list}, 1, 1) ; array_union({list}, {list}) ; array_compact({list}) ;
        sequence(1, 3) ; transform({list}, v -> v + 1) ; reverse({list}) ; array_remove({list}, 7) ;
        array_append({list}, 1) ; array_except({list}, {list}) ; array_intersect({list}, {list}) ;
        array_repeat({integer}, 2) ; concat({list}, {list}) ; flatten(array({list}, {list}))
    """,
    "texts": """
        split({text}, ',') ; split({text}, 'b') ; array({text}, {text}) ; split({text}, '[0-9]') ; split({text}, '')
        ; split({text}, ',', 2) ; array_distinct({texts}) ; array_sort({texts}) ; split({text}, '-')
    """,
    "aggregate": """
        count(*) ; count({integer}) ; count(distinct {text}) ; count_if({bool}) ; sum({integer}) ; sum({float}) ;
        sum({decimal}) ; avg({integer}) ; avg({float}) ; avg({decimal}) ; mean({decimal}) ; min({text}) ;
        max({date}) ; max({float}) ; min({decimal}) ; min({bool}) ; max({local}) ; stddev({float}) ;
        stddev_pop({integer}) ; variance({float}) ; var_pop({decimal}) ; median({float}) ; median({integer}) ;
        median({decimal}) ; percentile({float}, 0.3) ; percentile_cont(0.3) within group (order by {float}) ;
        percentile_disc(0.3) within group (order by {float}) ; corr({float}, {integer}) ; covar_pop({float},
        {integer}) ; covar_samp({float}, {integer}) ; regr_slope({float}, {integer}) ; regr_count({float},
        {integer}) ; regr_intercept({float}, {integer}) ; regr_r2({float}, {integer}) ; bool_and({bool}) ;
        bool_or({bool}) ; every({bool}) ; any({bool}) ; any_value(n) ; approx_count_distinct({integer}) ;
        sum({integer}) filter (where {bool}) ; avg({decimal}) filter (where {bool}) ; sum({decimal}) / count(*) ;
        sum({integer}) / count(*) ; sum({decimal}) / sum({integer}) ; sum({decimal}) * 2 ; avg({decimal}) * 2 ;
        round(avg({decimal}), 1) ; round(sum({decimal}) / count(*), 2) ; cast(avg({decimal}) as decimal(10, 2)) ;
        avg({decimal}) / 3 ; max({date}) - min({date}) ; sum({integer}) + max({decimal}) ; max({text}) || 'x' ;
        sum(distinct {integer}) ; avg(distinct {decimal}) ; sort_array(collect_list({integer})) ;
        sort_array(collect_set({integer})) ; array_agg({integer}) ; array_sort(collect_list({text})) ;
        bit_or({integer}) ; bit_and({integer}) ; max_by({text}, id) ; min_by({text}, id) ; first(id) ;
        count(distinct {decimal}) ; sum(cast({integer} as decimal(10,2))) ; avg(distinct {integer}) ;
        product({integer}) ; listagg({text}, ',') within group (order by id) ; string_agg({text}, ',') within group
        (order by id desc) ; try_sum({integer}) ; try_avg({integer}) ; grouping(n) ; mode({bool}) ; std({float}) ;
        var_samp({decimal}) ; sum({float}) / count({integer}) ; count(*) * 1.0 / 3 ; count(*) / 3 ; sum(if({bool},
        1, 0)) ; sum(case when {bool} then {decimal} else 0 end) ; avg(case when {bool} then {decimal} end) ;
        max(struct({integer}, {text})).col1
    """,
    "window": """
        row_number() over (partition by {part} order by id) ; rank() over (order by {order}) ; dense_rank() over
        (order by {order} desc) ; percent_rank() over (partition by {part} order by {order}) ; cume_dist() over
        (order by {order}) ; ntile(3) over (order by id) ; lag({any}) over (order by id) ; lag({any}, 2) over
        (partition by {part} order by id) ; lag({integer}, 1, 0) over (order by id) ; lead({any}) over (order by id
        desc) ; first_value({any}) over (partition by {part} order by id) ; last_value({any}) over (order by id) ;
        nth_value({any}, 2) over (order by id) ; first({any}) over (order by id) ; last({any}) over (order by id) ;
        sum({integer}) over (order by id) ; sum({decimal}) over (partition by {part} order by {order}) ;
        avg({decimal}) over (partition by {part}) ; count(*) over (partition by {part} order by {order}) ;
        min({any}) over (partition by {part}) ; max({any}) over (order by id rows between unbounded preceding and 1
        following) ; sum({float}) over (partition by {part}) ; {integer} - lag({integer}) over (order by id) ;
        {decimal} / sum({decimal}) over (partition by {part}) ; sum({integer}) over (order by i range between 2
        preceding and 1 following) ; count({any}) over (order by {order} desc) ; avg({decimal}) over (order by id
        rows between 1 preceding and 1 following) ; {decimal} - avg({decimal}) over (partition by {part}) ; sum(i)
        over (order by {order} nulls last) ; row_number() over (order by {text}, id) ; stddev({float}) over
        (partition by {part}) ; median({float}) over (partition by {part}) ; collect_list({integer}) over (order by
        id) ; max({date}) over (partition by {part}) - {date}
    """,
}
"""The forms of expressions by their types, with places for others; between semicolons."""
COLUMNS = {
    "integer": ["i", "n", "k"], "float": ["f"], "decimal": ["m", "w"], "text": ["s", "r"], "date": ["d", "e"], "local": ["t"],
    "instant": ["z"], "bool": ["b"], "list": ["array(i, n)"], "texts": ["split(s, ',')"],
    "part": ["n", "b", "s", "d"], "order": ["n", "s", "d", "m", "f", "t", "z"],
}  # fmt: skip
ANY = ["integer", "float", "decimal", "text", "date", "local", "bool"]


def expression(kind: str, rng: random.Random, depth: int = 2) -> str:
    """Return a random expression of a kind, of so many calls one in another."""
    if kind == "any":
        kind = rng.choice(ANY)
    if depth <= 0 or kind not in FORMS:
        return rng.choice(COLUMNS[kind])
    form = rng.choice(re.split(r"\s+;\s+", FORMS[kind].strip()))
    found = re.sub(r"\{(\w+)\}", lambda place: expression(place[1], rng, depth - 1), re.sub(r"\s+", " ", form))
    is_one = " " not in form or re.match(r"(case|if|cast|'|count)", form) or kind in ("aggregate", "window")
    return found if is_one else f"({found})"
