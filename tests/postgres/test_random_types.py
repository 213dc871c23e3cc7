"""Random columns come back from a table of Postgres as what they were, or `dd check` refuses them."""

from tests.draws import chance, many
from tests.tables.random_types import Journey


def test_random_columns(shop, database):
    for at in range(many(15)):
        draw = chance("types", "postgres", at)
        named = f"table: public.t{at}"
        given = f"database: '{database}', {named}"
        journey = Journey(
            shop.folder / f"{at}", draw, f"to: '{database}', {named}", given, declares=draw.random() < 0.5
        )
        journey.fit(shop)
        journey.travel()
