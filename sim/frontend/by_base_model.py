"""Front end of a fleet: run every request on the model that its base model names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.model import Model, in_role
from mezzotint.sim.core.plan import UNPLANNED, Plan
from mezzotint.sim.core.request import Request
from mezzotint.sim.protocols import FrontEnd, Run

MAX_MODELS = 10_000
"""Most base models of a fleet; a column with more holds no base models."""

NAMED = 3
"""Base models that an error names."""


@dataclass(slots=True)
class ByBaseModel(FrontEnd):
    """Plan every request in full on the model of its ``base_model``, a column of the trace, in no time.

    A base model that is called as a role or as its model is that one. Of the others, the most popular is the model of
    ``variants_of`` itself, unless another is already. The rest are fine-tunes of it: models with weights of their own,
    which cost the same.

    Args:
        models: base model -> its role; None names none.
        variants_of: role of the model that other base models are fine-tunes of; None knows none but ``models``.
        default: role of the requests without a base model that is known; None refuses them.

    Attributes:
        base_models: role -> the base models that it serves, the most popular first.
        shares: role -> share of the trace's requests, the most popular first.
    """

    models: dict[str, str] | None = None
    variants_of: str | None = "large"
    default: str | None = None
    base_models: dict[str, list[str]] = field(init=False, default_factory=dict, repr=False)
    shares: dict[str, float] = field(init=False, default_factory=dict, repr=False)
    _row_roles: NDArray[np.int32] = field(init=False, repr=False)
    _unknown: int = field(init=False, default=0, repr=False)
    _run: Run = field(init=False, repr=False)
    _plans: list[Plan] = field(init=False, repr=False)

    def read(self, codes: NDArray[np.int32], names: Sequence[str], models: Mapping[str, Model]) -> dict[str, Model]:
        """Read the base models of the trace; return ``models`` by role, and those that are fine-tunes of one.

        Args:
            codes: base model of each trace row, an index of ``names``; negative without one.

        Raises ConfigError for a role without a model, and for requests that none may serve.
        """
        for role in (*(self.models or {}).values(), *filter(None, (self.variants_of, self.default))):
            in_role(models, role)
        if len(names) > MAX_MODELS:
            raise ConfigError(
                f"frontend: found {len(names):,} base models in the trace, expected {MAX_MODELS:,} at most; import its "
                "column base_model from another one"
            )
        counts = np.bincount(codes[codes >= 0], minlength=len(names))
        by_popularity = sorted(range(len(names)), key=lambda code: (-counts[code], names[code]))
        role_of, fleet = self._roles(by_popularity, names, models)
        # The last is for rows without a code, which -1 finds.
        roles = [role_of.get(code, self.default) for code in range(len(names))] + [self.default]
        numbers = {role: number for number, role in enumerate(fleet)}
        self._row_roles = np.array([-1 if role is None else numbers[role] for role in roles], np.int32)[codes]
        self._check_known(codes, names, role_of)
        for code in by_popularity:
            if (known := role_of.get(code)) is not None:
                self.base_models.setdefault(known, []).append(names[code])
        served = np.bincount(self._row_roles, minlength=len(fleet))
        popular = sorted(fleet, key=lambda role: -served[numbers[role]])
        self.shares = {role: float(served[numbers[role]] / len(codes)) for role in popular if served[numbers[role]]}
        return fleet

    def _roles(
        self, by_popularity: Sequence[int], names: Sequence[str], models: Mapping[str, Model]
    ) -> tuple[dict[int, str], dict[str, Model]]:
        """Return the role of each base model that is known, by its code, and the models by role."""
        fleet = dict(models)
        of_name = (
            {model.name: role for role, model in models.items()} | {role: role for role in models} | (self.models or {})
        )
        role_of = {code: of_name[names[code]] for code in by_popularity if names[code] in of_name}
        if self.variants_of is None:
            return role_of, fleet
        original = models[self.variants_of]
        is_taken = self.variants_of in role_of.values()
        for code in by_popularity:
            if code in role_of:
                continue
            if not is_taken:
                role_of[code], is_taken = self.variants_of, True
                continue
            name = role_of[code] = names[code]
            fleet[name] = replace(original, name=name, architecture=original.architecture or original.name)
        return role_of, fleet

    def _check_known(self, codes: NDArray[np.int32], names: Sequence[str], role_of: Mapping[int, str]) -> None:
        """Count the requests of no known base model. Raises ConfigError if there are some and no default."""
        is_known = np.array([code in role_of for code in range(len(names))] + [False])[codes]
        self._unknown = int(len(codes) - is_known.sum())
        if self._unknown and self.default is None:
            unknown = [name for code, name in enumerate(names) if code not in role_of]
            named = f" ({', '.join(unknown[:NAMED])}{', ...' if len(unknown) > NAMED else ''})" if unknown else ""
            raise ConfigError(
                f"frontend.default: found {self._unknown} of {len(codes)} requests without a base model that is known"
                f"{named}; set it to the role of their model, such as large, or add frontend.models or variants_of"
            )

    def bind(self, run: Run) -> None:
        self._run = run
        self._plans = [Plan(run.model(role).name) if role in self.shares else UNPLANNED for role in run.models]
        if self._unknown:
            run.assume(
                f"requests without a known base model, served by the model in role {self.default}",
                self._unknown,
                "frontend.default",
            )
        variants = [model.name for model in run.models.values() if model.architecture is not None]
        if variants:
            run.assume(
                "models that cost as another, of the same architecture",
                len(variants),
                f"frontend.variants_of: fine-tunes of {run.models[self.variants_of or self.default or 'large'].name}",
            )

    def admit(self, request: Request, now_s: float) -> float:
        self._run.assign(request, self._plans[self._row_roles[request.row]])
        return 0.0
