"""Stages, as random graphs are cut into them: what a step reads is there, and what nobody reads any more is let go of."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddcli.engine.stages import stages


@dataclass(frozen=True)
class Place:
    """What stages ask of a place."""

    inputs: tuple[int, ...] = ()
    gathers: bool = False
    whole: bool = False
    ports: tuple[int, ...] = ()
    wraps: bool = False


@st.composite
def graphs(draw):
    """Give places as a scope has them: sources, places that are fed by shard, operators, wrappers, scopes within and their ports.

    Nobody reads a scope within itself: what it gives is at its ports, which come right after it.
    """
    places, readable = [], []
    for _ in range(draw(st.integers(1, 14))):
        at = len(places)
        kinds = ["source", "fed", *(["one", "many", "gather", "wrapper", "inner"] if readable else [])]
        kind = draw(st.sampled_from(kinds))
        several = st.lists(st.sampled_from(readable or [0]), min_size=1, max_size=3).map(tuple)
        if kind == "source":
            places.append(Place())
        elif kind == "fed":
            places.append(Place((at,), gathers=True))
        elif kind == "inner":
            ports = tuple(range(at + 1, at + 1 + draw(st.integers(1, 2))))
            places += [Place(draw(several), whole=True, ports=ports), *[Place() for _ in ports]]
            readable += ports
            continue
        else:
            inputs = draw(several if kind == "many" else several.map(lambda found: found[:1]))
            places.append(Place(inputs, gathers=kind == "gather", wraps=kind == "wrapper"))
        readable.append(at)
    return places


def readers(places, index):
    """Return who reads a place, and who reads what wraps it: they read what the place itself keeps."""
    found = set()
    for reader, place in enumerate(places):
        if index in place.inputs and reader != index:
            found |= {reader} | (readers(places, reader) if place.wraps else set())
    return found


def numbers_of(found):
    """Return the number of the stage of each place."""
    return {index: number for number, stage in enumerate(found) for index in stage.places}


HOW = pytest.mark.parametrize(("sharded", "apart"), [(False, False), (True, False), (True, True)])


@HOW
@given(places=graphs())
def test_each_place_is_in_one_stage_after_what_it_reads(places, sharded, apart):
    found = stages(places, sharded=sharded, apart=apart)
    assert sorted(index for stage in found for index in stage.places) == [*range(len(places))]
    number = numbers_of(found)
    ports = {port: index for index, place in enumerate(places) for port in place.ports}
    for stage in found:
        assert stage.places == tuple(sorted(stage.places))
        assert stage.members == {*stage.places}
        assert stage.whole == any(places[index].whole for index in stage.places)
        assert not stage.whole or len(stage.places) == 1, "a scope within is alone"
    for index, place in enumerate(places):
        above = [number[i] for i in place.inputs if i != index]
        if place.whole or (sharded and place.gathers):
            assert number[index] > max(above, default=-1), "what is brought here was given in earlier stages"
        elif above:
            assert number[index] == max(above), "who stays with the shard goes through in one go"
        if index in ports:
            assert number[index] > number[ports[index]]


@HOW
@given(places=graphs())
def test_a_step_finds_what_it_reads_and_leaves_nothing(places, sharded, apart):
    """Played through: `there` is what lies between the stages, `here` what a shard has in its stage."""
    found = stages(places, sharded=sharded, apart=apart)
    number = numbers_of(found)
    ports = {port for place in places for port in place.ports}
    there = {index for index, place in enumerate(places) if index not in ports and place.inputs in ((), (index,))}
    for at, stage in enumerate(found):
        wanted = {i for index in stage.places for i in places[index].inputs if number[i] != at}
        assert wanted <= stage.reads
        assert stage.reads <= there, "what is read is there"
        if stage.whole:
            (index,) = stage.places
            there |= {*places[index].ports}
            assert not stage.exports, "what it gives is at its ports"
        else:
            here = {*stage.reads}
            for index, frees in zip(stage.places, stage.frees, strict=True):
                assert {*places[index].inputs} <= here
                here.add(index)
                assert {*frees} <= here, "freed once"
                here -= {*frees}
            assert here == stage.exports, "what is left is for later stages"
            later = {i for index, place in enumerate(places) if number[index] > at for i in place.inputs}
            assert stage.exports == stage.members & later
            there |= stage.exports
        there -= stage.seals
    assert not there


@HOW
@given(places=graphs())
def test_a_place_is_sealed_with_its_last_reader_and_once(places, sharded, apart):
    found = stages(places, sharded=sharded, apart=apart)
    number = numbers_of(found)
    sealed = {index: at for at, stage in enumerate(found) for index in stage.seals}
    assert sum(len(stage.seals) for stage in found) == len(sealed) == len(places)
    for index, at in sealed.items():
        assert at == max(number[reader] for reader in {index, *readers(places, index)})


@given(places=graphs())
def test_the_first_stage_reads_what_is_fed_row_by_row(places):
    """Any cut of it will do, so nothing in it needs groups whole or comes by shard."""
    found = stages(places, sharded=True)
    assert not any(stage.first for stage in found[1:])
    ports = {port for place in places for port in place.ports}
    plain = {index for index, place in enumerate(places) if not place.inputs and index not in ports}
    if plain:
        assert found[0].first
        assert plain <= found[0].members
    else:
        assert not found[0].first
    if found[0].first:
        assert not any(places[index].gathers or places[index].whole for index in found[0].places)
        assert found[0].reads == plain


@given(places=graphs())
def test_stages_apart_share_nothing(places):
    """Those that read what is fed come first, and take any cut of it; two of one level have no place that reads the other."""
    found = stages(places, sharded=True, apart=True)
    number = numbers_of(found)
    whole = stages(places, sharded=True)
    level = numbers_of(whole)
    firsts = [stage.first for stage in found]
    assert firsts == sorted(firsts, reverse=True)
    assert {index for stage in found if stage.first for index in stage.places} == {
        index for stage in whole if stage.first for index in stage.places
    }
    for index, place in enumerate(places):
        for i in place.inputs:
            assert level[i] != level[index] or number[i] == number[index]
    for stage in found:
        if stage.whole or len(stage.places) == 1:
            continue
        joined, more = {stage.places[0]}, True
        while more:
            near = {i for index in joined for i in places[index].inputs} | {
                index for index in stage.places if joined.intersection(places[index].inputs)
            }
            more = not near & stage.members <= joined
            joined |= near & stage.members
        assert joined == stage.members, "it can't be cut further"


def test_nothing_is_exchanged_where_there_is_one_shard():
    places = [Place(), Place((0,), gathers=True), Place((1,), gathers=True), Place((2,))]
    assert [stage.places for stage in stages(places, sharded=False)] == [(0, 1, 2, 3)]
    assert [stage.places for stage in stages(places, sharded=True)] == [(0,), (1,), (2, 3)]
