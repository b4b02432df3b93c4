"""Counterfactuals of a run: configurations without an assumption that its result may rest on."""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from mezzotint.figures.page import percent
from mezzotint.settings.choice import choice
from mezzotint.sim.metrics.served import served_models, service_error
from mezzotint.sim.metrics.summary_keys import number_at

EXAMPLE = 0.1
"""Relative change of the service times of runs whose error is unknown."""

POINTS = 0.1
"""Change of a hit rate, up and down."""

HITS = "mezzotint.sim.frontend.declared_hits.DeclaredHits"

PROFILED = "mezzotint.backends.profiled.Profiled"

Config = Mapping[str, Any]


def counterfactuals(summary: Mapping[str, Any], config: Config) -> list[tuple[str, dict[str, Any]]]:
    """Return what to try of a run, in words, with the resolved configuration that tries it.

    Parts of the design that conf/data/counterfactuals.yaml lists are left out, hits are changed by POINTS and left out,
    and service times are longer by their known error. Empty for a live run, whose times are the machine's.

    Args:
        summary: of the run; its hit rate and the error of its times decide how far they are changed.
    """
    backend = config.get("backend")
    if not isinstance(backend, Mapping) or backend.get("_target_") != PROFILED:
        return []
    found = [
        (row["words"], _with(config, row["set"]))
        for row in _read_list()
        if all(_fits(_at(config, key), wanted) for key, wanted in row["if"].items())
    ]
    found += [(words, {**config, "hits": hits}) for words, hits in _other_hits(summary, config)]
    error = service_error(served_models(summary))
    known = f"known to {percent(error)}" if error is not None else "an example, as their error is not known"
    share = EXAMPLE if error is None else error
    return [*found, (f"with times {percent(share)} longer ({known})", with_times(config, 1 + share))]


def with_times(config: Config, factor: float) -> dict[str, Any]:
    """Return ``config`` with every stage ``factor`` times as long, on top of its backend.service_factor."""
    backend = config["backend"]
    return {**config, "backend": {**backend, "service_factor": factor * backend.get("service_factor", 1.0)}}


@cache
def _read_list() -> Sequence[Mapping[str, Any]]:
    text = (files("mezzotint.conf") / "data" / "counterfactuals.yaml").read_text(encoding="utf-8")
    rows: list[Mapping[str, Any]] = yaml.safe_load(text)
    return rows


def _other_hits(summary: Mapping[str, Any], config: Config) -> list[tuple[str, dict[str, Any]]]:
    """Return the settings of `hits` with more, with fewer and without hits; empty of a run without any."""
    rate = number_at(summary, "cache", "hit_rate")
    if not rate:
        return []
    declared = config.get("hits") or {}
    shares = (summary["cache"]["hit_share_by_k"] or {}) if not declared or declared.get("of_run") else {}
    base = {key: value for key, value in declared.items() if key != "of_run"} if declared else {"_target_": HITS}
    if shares:
        base |= {"shares": {int(k): rate * share for k, share in shares.items()}, "hit_rate": None, "mean_k": None}
    if base.get("_target_") != HITS:
        return []
    found = []
    for other in (rate - POINTS, rate + POINTS):
        if 0 < other <= 1:
            words = f"with a hit rate of {percent(other, 0)} for {percent(rate, 0)}"
            found.append((words, _scale_hits(base, other / rate)))
    return [*found, ("without hits", {**base, "shares": {}, "hit_rate": 0.0, "mean_k": None})]


def _scale_hits(hits: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """Return settings of declared hits whose shares are all ``factor`` times as large."""
    rate = hits.get("hit_rate")
    shares = {k: share * factor for k, share in (hits.get("shares") or {}).items()}
    return {**hits, "shares": shares, "hit_rate": None if rate is None else rate * factor}


def _at(config: Config, key: str) -> Any:
    value: Any = config
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is True:
        return bool(value)
    return str(value).endswith(wanted) if isinstance(wanted, str) else bool(value == wanted)


def _with(config: Config, changes: Mapping[str, Any]) -> dict[str, Any]:
    changed = dict(config)
    for key, value in changes.items():
        group, _, name = key.partition(".")
        if name:
            changed[group] = {**changed[group], name: value}
        else:
            changed[group] = value if value is None else dict(choice(group, value))
    return changed
