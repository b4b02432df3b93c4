"""The fitted parameters, kept in conf/trace: synthetic.yaml has all of them, others what differs from it."""

import copy
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

LIKE = MappingProxyType(
    {
        "diffusiondb": "synthetic",
        "gentd26": "synthetic-gentd26",
        "service-a": "synthetic-service-a",
        "service-b": "synthetic-service-b",
    }
)
"""What a synthetic trace can be like, and the file in conf/trace with the parameters."""


def published(name: str) -> Any:
    """The fitted value of a parameter of the synthetic source; the file names its statistic and source."""
    return copy.deepcopy(_parameters("synthetic")[name])


def fitted_locality(service: str) -> dict[str, Any]:
    """What of a service's law is fitted to measured loads of caches of add-ons, which its own law predicts."""
    found: dict[str, Any] = copy.deepcopy(
        _parameters(f"synthetic-service-{service.lower()}-fitted")["services"][service]
    )
    return found


def parameters(like: str) -> dict[str, Any]:
    """The parameters of the synthetic source that make it like a key of `LIKE`, those that are not its own left out."""
    return _apart(LIKE[like])


def _apart(file: str) -> dict[str, Any]:
    """What a file and those that it begins from have apart from synthetic.yaml."""
    own = _parameters(file)
    if "defaults" not in own:
        return {}
    begun = [_apart(each) for each in own["defaults"]]
    return {key: value for each in begun for key, value in each.items()} | {
        key: copy.deepcopy(own[key]) for key in own if key != "defaults"
    }


@cache
def _parameters(file: str) -> Mapping[str, Any]:
    text = (files("conf") / "trace" / f"{file}.yaml").read_text(encoding="utf-8")
    return MappingProxyType(yaml.safe_load(text))
