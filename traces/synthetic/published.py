"""The fitted parameters, kept in one place: conf/trace/synthetic.yaml."""

import copy
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


def published(name: str) -> Any:
    """The fitted value of a parameter of the synthetic source; the file names its statistic and source."""
    return copy.deepcopy(_parameters()[name])


@cache
def _parameters() -> dict[str, Any]:
    text = (files("conf") / "trace" / "synthetic.yaml").read_text(encoding="utf-8")
    parameters: dict[str, Any] = yaml.safe_load(text)
    return parameters
