"""Every pair of parts works or is refused in words that help, and what is accepted has an effect.

After a change of what works together: ``python -m docs.reference.parts`` writes docs/reference/parts.yaml anew.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations

import pytest

from docs.reference.parts import (
    GROUPS,
    Chosen,
    Part,
    differ,
    kind_of,
    pairs,
    parts,
    read_refusals,
    try_chosen,
    try_pair,
    with_needs,
)
from mezzotint.sim.run.config.choices import groups

KEYS = re.compile(rf"\b({'|'.join([*groups(), 'addons', 'extrapolate'])})[.\w]*[=:]")
"""A key of the configuration, as refusals name it."""

ADDONS = ("controlnet_placement", "lora_loading")
ACTS = ("controller", "failures", "feature_cache", *ADDONS)
"""Groups whose choices are held to have an effect."""

PLACES = ("executor", "scheduler", "group_policy")
"""Groups beside whose choices this is tried."""


@cache
def refused() -> dict[frozenset[Part], str]:
    """Return what parts.yaml says: pair -> the words that refuse it."""
    return {frozenset(pair): refusal.words for refusal in read_refusals() for pair in refusal.pairs}


def works(*chosen: Part) -> bool:
    """Return True if parts.yaml has no refusal of any two of ``chosen``."""
    return not any(frozenset(pair) in refused() for pair in combinations(chosen, 2))


def needed(chosen: Chosen) -> tuple[Part, ...]:
    """Return the parts of ``chosen`` that pairs are made of."""
    return tuple(part for part in parts() if chosen.get(part.group) == part.choice)


def systems() -> Iterator[tuple[set[frozenset[Part]], Chosen]]:
    """Yield systems of many parts that between them have every pair that works, each with the pairs that it is for.

    A greedy covering array: each begins with a pair that none has yet, and takes the parts that add most such pairs, as
    long as every two of its parts work together.
    """
    left = {frozenset(pair) for pair in pairs()} - refused().keys()
    for pair in [tuple(pair) for pair in pairs()]:
        if frozenset(pair) not in left:
            continue
        ways = (with_needs(*pair), with_needs(*reversed(pair)))
        chosen = next((way for way in ways if works(*needed(way))), ways[0])
        while True:
            have = needed(chosen)
            gains = [
                (sum(frozenset((part, other)) in left for other in have), part)
                for part in parts()
                if part.group not in chosen and works(part, *have)
            ]
            for gain, part in sorted(gains, key=lambda row: -row[0]):
                more = with_needs(*(Part(*item) for item in chosen.items()), part)
                if gain and chosen.items() <= more.items() and works(*needed(more)):
                    chosen = more
                    break
            else:
                break
        new = {frozenset(two) for two in combinations(needed(chosen), 2)} & left
        left -= new
        yield new, chosen


def test_every_pair_that_works_is_in_a_system_that_works() -> None:
    """Pairs of a system that three parts refuse together are run alone; every other error fails."""
    alone = []
    for covered, chosen in systems():
        tried = try_chosen(chosen)
        if tried.refusal:
            assert KEYS.search(tried.refusal), tried.refusal
            alone += [tuple(pair) for pair in covered]
    wrong = {pair: words for pair in alone if (words := try_pair(*sorted(pair, key=parts().index))[1].refusal)}
    assert wrong == {}


def refusals() -> Iterator[tuple[Part, Part]]:
    """Yield refused pairs that between them have every part with each kind of words that refuses it."""
    met: set[tuple[str, Part]] = set()
    for pair in pairs():
        if (words := refused().get(frozenset(pair))) is not None:
            new = {(kind_of(words), part) for part in pair} - met
            if new:
                yield pair
            met |= new


def test_every_part_is_refused_beside_others_in_words_that_name_a_key() -> None:
    for pair in refusals():
        _, tried = try_pair(*pair)
        assert kind_of(tried.refusal) == kind_of(refused()[frozenset(pair)]), pair
        assert KEYS.search(tried.refusal), tried.refusal


@pytest.mark.parametrize("group", ACTS)
def test_what_is_accepted_has_an_effect(group: str) -> None:
    """Its run differs from the run without it; of add-ons from that of another choice, or from that without add-ons.

    Every choice of add-ons is tried in every place; of the other groups every second one, in turns.
    """
    mine = [part for part in parts() if part.group == group]
    for number, place in enumerate(part for part in parts() if part.group in PLACES):
        possible = [part for part in mine if works(part, place)]
        turn = possible if group in ADDONS else possible[number % 2 :: 2] or possible
        ran = {part: try_pair(*sorted((part, place), key=parts().index)) for part in turn}
        for part, (chosen, tried) in ran.items():
            others = [other for name, (_, other) in ran.items() if name != part]
            if group not in ADDONS or not others:
                left_out = (group, "addons") if group in ADDONS else (group,)
                others = [try_chosen({name: choice for name, choice in chosen.items() if name not in left_out})]
            assert any(other.refusal or differ(tried, other) for other in others), (part, place)


def test_groups_that_are_paired_are_parts() -> None:
    assert all(groups()[group].part is not None for group in GROUPS)
