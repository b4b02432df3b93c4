"""Fitted parameters in conf/trace: synthetic.yaml has all of them, other files the differences."""

import copy
from typing import Any

from mezzotint.settings.choice import choice


def published(name: str) -> Any:
    """Return the fitted value of a parameter of the synthetic source; the file names its statistic and source."""
    return copy.deepcopy(choice("trace", "synthetic")[name])


def fitted_locality(service: str) -> dict[str, Any]:
    """Return the settings of a service fitted to measured loads of caches of add-ons."""
    return dict(choice("trace", f"synthetic-service-{service.lower()}-fitted")["services"][service])


def parameters(like: str) -> dict[str, Any]:
    """Return all parameters of the synthetic source fitted to diffusiondb, gentd26, service-a or service-b."""
    file = "synthetic" if like == "diffusiondb" else f"synthetic-{like}"
    return {name: value for name, value in choice("trace", file).items() if name != "_target_"}
