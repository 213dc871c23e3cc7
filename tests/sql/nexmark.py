"""Nexmark's events and queries: persons, auctions and bids of an auction house, times in milliseconds of the events' clock.

Of 50 events one is a person and three are auctions, as Nexmark defines them; most bids are on auctions, and by persons, that are hot now.
A window over the events' own times is a group by the number of the window; a session, which ends
where no bid comes for a while, by how many have begun. `LEFT_OUT` are the queries that are no statement here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    import random

    from tests.sql.changes import Frames

LEFT_OUT = {
    "q10": "writes its input to files by day: a sink",
    "q12": "windows of the wall clock",
}
CITIES = {"Phoenix": "AZ", "Los Angeles": "CA", "San Francisco": "CA", "Boise": "ID", "Portland": "OR", "Bend": "OR", "Seattle": "WA", "Kent": "WA"}  # fmt: skip
CHANNELS = ("Google", "Facebook", "Baidu", "Apple", "channel-1", "channel-2", "channel-3")
APART = 200
"""Milliseconds between events, so that a few thousand fill many windows of 10 seconds."""
QUERIES = {
    "q0": "select auction, bidder, price, date_time, extra from bid",
    "q1": "select auction, bidder, cast(0.908 * price as decimal(23, 3)) as price, date_time, extra from bid",
    "q2": "select auction, price from bid where auction % 7 = 0",
    "q3": """\
select p.name, p.city, p.state, a.id
from auction as a inner join person as p on a.seller = p.id
where a.category = 10 and (p.state = 'OR' or p.state = 'ID' or p.state = 'CA')""",
    "q4": """\
select q.category, avg(q.final)
from (
  select max(b.price) as final, a.category
  from auction a, bid b
  where a.id = b.auction and b.date_time between a.date_time and a.expires
  group by a.id, a.category
) q
group by q.category""",
    "q5": """\
with windows as (
  select b.auction, w.number, count(*) as num
  from bid b, lateral generate_series(b.date_time // 2000 - 4, b.date_time // 2000) as w(number)
  group by b.auction, w.number
)
select auction, number, num from windows one
where num >= (select max(num) from windows other where other.number = one.number)""",
    "q6": """\
select q.seller, q.id, avg(q.final) over (
  partition by q.seller order by q.closed, q.id rows between 10 preceding and current row
) as average
from (
  select max(b.price) as final, a.seller, a.id, max(b.date_time) as closed
  from auction a, bid b
  where a.id = b.auction and b.date_time between a.date_time and a.expires
  group by a.id, a.seller
) q""",
    "q7": """\
select b.auction, b.price, b.bidder, b.date_time, b.extra
from bid b join (
  select max(price) as maxprice, date_time // 10000 as number from bid group by date_time // 10000
) b1 on b.price = b1.maxprice
where b.date_time between b1.number * 10000 and b1.number * 10000 + 9999""",
    "q8": """\
select p.id, p.name, p.starttime
from (
  select id, name, date_time // 10000 as starttime from person group by id, name, date_time // 10000
) p join (
  select seller, date_time // 10000 as starttime from auction group by seller, date_time // 10000
) a on p.id = a.seller and p.starttime = a.starttime""",
    "q9": """\
select distinct on (a.id) a.id, a.item, a.seller, a.category, b.auction, b.bidder, b.price, b.date_time as bid_time, b.extra
from auction a, bid b
where a.id = b.auction and b.date_time between a.date_time and a.expires
order by a.id, b.price desc, b.date_time, b.bidder, b.extra, a.item, a.seller, a.category""",
    "q11": """\
select bidder, count(*) as bid_count, min(date_time) as starttime, max(date_time) as endtime
from (
  select bidder, date_time, sum(begins) over (partition by bidder order by date_time) as session
  from (
    select bidder, date_time,
      case when date_time - lag(date_time) over (partition by bidder order by date_time) <= 2000 then 0 else 1 end as begins
    from bid
  ) b
) s
group by bidder, session""",
    "q13": "select b.auction, b.bidder, b.price, b.date_time, s.value from bid b join side s on b.auction % 100 = s.key",
    "q14": """\
select auction, bidder, cast(0.908 * price as decimal(23, 3)) as price,
  case when date_time // 3600000 % 24 between 8 and 18 then 'dayTime'
       when date_time // 3600000 % 24 <= 6 or date_time // 3600000 % 24 >= 20 then 'nightTime' else 'otherTime' end as bid_time,
  extra, length(extra) - length(replace(extra, 'c', '')) as c_counts
from bid
where 0.908 * price > 1000 and 0.908 * price < 50000000""",
    "q15": """\
select date_time // 86400000 as day, count(*) as total_bids,
  count(*) filter (where price < 10000) as rank1_bids,
  count(*) filter (where price >= 10000 and price < 1000000) as rank2_bids,
  count(*) filter (where price >= 1000000) as rank3_bids,
  count(distinct bidder) as total_bidders,
  count(distinct bidder) filter (where price < 10000) as rank1_bidders,
  count(distinct bidder) filter (where price >= 10000 and price < 1000000) as rank2_bidders,
  count(distinct bidder) filter (where price >= 1000000) as rank3_bidders,
  count(distinct auction) as total_auctions,
  count(distinct auction) filter (where price < 10000) as rank1_auctions
from bid
group by date_time // 86400000""",
    "q16": """\
select channel, date_time // 86400000 as day, max(date_time // 60000) as minute, count(*) as total_bids,
  count(*) filter (where price < 10000) as rank1_bids,
  count(distinct bidder) as total_bidders,
  count(distinct bidder) filter (where price >= 1000000) as rank3_bidders,
  count(distinct auction) filter (where price >= 10000 and price < 1000000) as rank2_auctions
from bid
group by channel, date_time // 86400000""",
    "q17": """\
select auction, date_time // 86400000 as day, count(*) as total_bids,
  count(*) filter (where price < 10000) as rank1_bids,
  count(*) filter (where price >= 1000000) as rank3_bids,
  min(price) as min_price, max(price) as max_price, avg(price) as avg_price, sum(price) as sum_price
from bid
group by auction, date_time // 86400000""",
    "q18": """\
select distinct on (bidder, auction) auction, bidder, price, channel, url, date_time, extra
from bid
order by bidder, auction, date_time desc, price, channel, url, extra""",
    "q19": """\
select a.id, b.price, b.bidder
from auction a, lateral (
  select price, bidder from bid where auction = a.id order by price desc, bidder limit 10
) b""",
    "q20": """\
select b.auction, b.bidder, b.price, b.channel, a.item, a.description, a.initial, a.reserve, a.seller, a.category
from bid b inner join auction a on b.auction = a.id
where a.category = 10""",
    "q21": """\
select auction, bidder, price, channel,
  case when lower(channel) = 'apple' then '0' when lower(channel) = 'google' then '1'
       when lower(channel) = 'facebook' then '2' when lower(channel) = 'baidu' then '3'
       else regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) end as channel_id
from bid
where regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> '' or lower(channel) in ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """\
select auction, bidder, price, channel, split(url, '/')[4] as dir1, split(url, '/')[5] as dir2, split(url, '/')[6] as dir3
from bid""",
}


def tables(rng: random.Random, events: int) -> Frames:
    """Return the tables that so many events fill, and the side input of Q13."""
    persons, auctions, bids = [], [], []
    for at in range(events):
        time, extra = 1_436_918_400_000 + at * APART, "".join(rng.choices("abcdef", k=rng.randrange(8)))
        if at % 50 == 0:
            city = rng.choice(list(CITIES))
            name = (
                f"{rng.choice(['Peter', 'Paul', 'Luke', 'John', 'Saul'])} {rng.choice(['Shultz', 'Abrams', 'White'])}"
            )
            persons.append((1000 + len(persons), name, city, CITIES[city], time, extra))
        elif at % 50 <= 3:
            seller = _recent(rng, len(persons), hot=4)
            initial = _price(rng)
            more = (initial, initial + _price(rng), time, time + rng.randrange(1, 60_000), 1000 + seller)
            auctions.append((1000 + len(auctions), f"item-{rng.randrange(100)}", extra, *more, 10 + rng.randrange(5)))
        elif auctions:
            auction, bidder = _recent(rng, len(auctions), hot=2), _recent(rng, len(persons), hot=4)
            channel = rng.choice(CHANNELS)
            tail = f"&channel_id={rng.randrange(100)}" if "-" in channel and rng.random() < 0.7 else ""
            url = f"https://www.nexmark.com/{rng.choice('xyz')}/{rng.choice('xyz')}/item.htm?query=1{tail}"
            bids.append((1000 + auction, 1000 + bidder, _price(rng), channel, url, time, extra))
    names = {
        "person": (persons, "id name city state date_time extra"),
        "auction": (auctions, "id item description initial reserve date_time expires seller category"),
        "bid": (bids, "auction bidder price channel url date_time extra"),
        "side": ([(key, f"value {key * 7 % 11}") for key in range(0, 100, 3)], "key value"),
    }
    return {name: pl.DataFrame(rows, schema=listed.split(), orient="row") for name, (rows, listed) in names.items()}


def _recent(rng: random.Random, count: int, hot: int) -> int:
    """Return one of those so far: mostly the hot one, each so many apart, else one of the last hundred."""
    if rng.randrange(hot):
        return (count - 1) // 20 * 20
    return max(0, count - 1 - rng.randrange(100))


def _price(rng: random.Random) -> int:
    """Return a price in cents: few are high."""
    return round(10 ** (rng.random() * 6) * 100)
