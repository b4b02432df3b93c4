"""ControlNets and LoRAs of a service: popularity, combinations, and locality on nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Gt, Le, Len
from pydantic import ConfigDict, Strict, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from mezzotint.settings.ranges import Positive, Share
from mezzotint.traces.error import TraceError
from mezzotint.traces.synthetic.ancestry import Order, draw_lags, order_by
from mezzotint.traces.synthetic.distributions import Floats, Indices, choices, inherited_from, numbered_names, zipf
from mezzotint.traces.table.validation import excerpt

Weight = Annotated[float, Ge(0), Le(1e15)]
Together = Annotated[tuple[list[str], Positive], Strict(False)]
"""Names used together, and the weight of that combination."""

MIN_SPREAD = 1e-6
"""Smallest spread over nodes that is modelled."""

ROUNDS = 200
"""Iterations of scaling the shares on nodes, at most; it stops at convergence."""


@pydantic_dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, allow_inf_nan=False))
class AddonService:
    """Model of one service's add-ons; conf/trace/synthetic.yaml has the values and their sources.

    A request goes to a node by the nodes' shares of the traffic. ControlNets come in combinations. A node keeps one for
    a run of requests (of geometric length) before it draws the next by its own shares. LoRAs are those of an earlier
    request of the node with chance `loras_again`, else distinct draws from the service's popularity. Locality does not
    change popularity; the cache of a node sees the same add-ons more often.

    Args:
        name: prefix of the names of add-ons and requests.
        nodes: number of nodes of the service.
        node_shape: shape of the Gamma distribution of requests over nodes (1: exponential; large: equal).
        node_spread: standard deviation over nodes of a combination's share on a node; 0: equal nodes.
        controlnets: rows of names used together, and their weight.
        other_controlnets: number of further ones, each used alone, and their total weight; [0, 0] for none.
        run_share, run_least: mean length of a run, in requests of a node: run_share / w for a combination with the
            share w of the service's requests, and at least run_least (1 or more).
        loras_again, again_lag: chance that a request has an earlier one's LoRAs, and the exponent of the lag: P(at
            least k requests of the node) is k ** -again_lag.
        loras_per_request: shares of the requests with 0, 1, 2... LoRAs.
        lora_names, lora_skew, lora_shift: number of LoRAs, drawn with weights (1 + rank + lora_shift) ** -lora_skew.
    """

    name: str
    nodes: Annotated[int, Ge(1), Le(10**5)]
    node_shape: Annotated[float, Ge(1e-3), Le(1e6)]
    node_spread: Share
    controlnets: Annotated[list[Together], Len(1)]
    other_controlnets: Annotated[tuple[Annotated[int, Ge(0), Le(10**5)], Weight], Strict(False)]
    run_share: Share
    run_least: Annotated[float, Ge(1), Le(1e6)]
    loras_per_request: Annotated[list[Weight], Len(2)]
    lora_names: Annotated[int, Ge(1), Le(10**6)]
    lora_skew: Annotated[float, Ge(0), Le(10)]
    lora_shift: Weight
    loras_again: Share
    again_lag: Annotated[float, Gt(0), Le(100)]

    def draw(self, count: int, rng: np.random.Generator) -> "DrawnAddons":
        """Draw nodes and add-ons of `count` requests in the order of arrival."""
        load = self.loads()
        node = choices(load, count, rng)
        order = order_by(node)
        names, weights = self.combinations()
        shares = self.node_shares(load, weights, rng)
        combination = np.empty(count, np.int64)
        combination[order.ordered] = self._runs(shares, weights, np.bincount(node, minlength=self.nodes), rng)
        lists = pa.array(names, pa.list_(pa.string())).take(pa.array(combination))
        loras = self._loras(self._source(order, rng), rng)
        return DrawnAddons(node, lists, loras)

    def loads(self) -> Floats:
        """Return each node's share of the requests, (nodes,), falling: quantiles of the Gamma distribution."""
        from scipy.special import gammaincinv  # a slow import, needed only with add-ons

        found: Floats = gammaincinv(self.node_shape, (np.arange(self.nodes)[::-1] + 0.5) / self.nodes)
        return np.asarray(found / found.sum(), np.float64)

    def combinations(self) -> tuple[list[list[str]], Floats]:
        """Return the combinations of ControlNets and their shares of the service's requests, (n,), summing to 1."""
        others, weight = int(self.other_controlnets[0]), float(self.other_controlnets[1])
        names = [list(together) for together, _ in self.controlnets]
        names += [[f"{self.name.lower()}-cn-other{number + 1:02d}"] for number in range(others)]
        weights = np.array([*(w for _, w in self.controlnets), *[weight / max(others, 1)] * others], np.float64)
        return names, weights / weights.sum()

    def node_shares(self, load: Floats, weights: Floats, rng: np.random.Generator) -> Floats:
        """Draw the shares of the n combinations on each node, (nodes, n), rows summing to 1.

        Gamma draws are scaled until each combination has its share of the service's requests over all nodes.
        """
        if self.node_spread == 0.0 or self.nodes == 1:
            return np.broadcast_to(weights, (self.nodes, len(weights)))
        shape = np.maximum((weights / max(self.node_spread, MIN_SPREAD)) ** 2, 1.0)
        drawn = rng.gamma(shape, size=(self.nodes, len(weights))) / shape * weights
        for _ in range(ROUNDS):
            drawn /= drawn.sum(1, keepdims=True)
            factor = weights / (load @ drawn)
            if np.abs(factor - 1.0).max() < 1e-9:
                break
            drawn *= factor
        return np.asarray(drawn / drawn.sum(1, keepdims=True), np.float64)

    def _runs(self, shares: Floats, weights: Floats, requests: Indices, rng: np.random.Generator) -> Indices:
        """Draw the combinations of each node's `requests`, (nodes,), in order, node after node: (sum,)."""
        length = np.maximum(self.run_least, self.run_share / weights)
        drawn = []
        for share, wanted in zip(shares, requests, strict=True):
            run_weights = share / length  # shares of the runs; `share` is that of the requests
            many = int(1.2 * wanted * run_weights.sum()) + 20
            combination = choices(share, 1, rng)  # the run under way as the trace begins
            while wanted > 0:
                block = np.repeat(combination, rng.geometric(1.0 / length[combination]))[:wanted]
                drawn.append(block)
                wanted -= len(block)
                combination = choices(run_weights, many, rng)
        return np.concatenate(drawn)

    def _source(self, order: Order, rng: np.random.Generator) -> Indices:
        """Draw the row whose LoRAs each row has, (count,): itself, or with chance `loras_again` an earlier one."""
        rows = np.arange(len(order.rank))
        repeats = (order.before > 0) & (rng.random(len(rows)) < self.loras_again)
        lag = np.where(repeats, draw_lags(np.maximum(order.before, 1), self.again_lag, rng), 0)
        return inherited_from(~repeats, order.earlier(rows, lag))

    def _loras(self, source: Indices, rng: np.random.Generator) -> pa.Array:
        shares = np.array(self.loras_per_request, np.float64)
        count, size = len(source), int(self.lora_names)
        many = choices(shares, count, rng)
        drawn = np.column_stack(
            [zipf(size, self.lora_skew, count, rng, self.lora_shift) for _ in range(len(shares) - 1)]
        )
        for column in range(1, drawn.shape[1]):
            # replace a name that the request already has by the next of the list
            while (twice := (drawn[:, :column] == drawn[:, column : column + 1]).any(1)).any():
                drawn[twice, column] = (drawn[twice, column] + 1) % size
        drawn, many = drawn[source], many[source]
        ends = np.concatenate(([0], np.cumsum(many)))
        flat = drawn[np.arange(drawn.shape[1]) < many[:, None]]
        return pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), numbered_names(f"{self.name.lower()}-lora", flat, size)
        )


@dataclass(frozen=True, slots=True)
class DrawnAddons:
    """Nodes, (n,), and lists of names of add-ons, (n,) each, of a service's requests."""

    node: Indices
    controlnets: pa.Array
    loras: pa.Array


def service(given: Mapping[str, Any], name: str) -> AddonService:
    """Return the model of the service `name`.

    Raises TraceError if a key is missing or unknown, or a value is out of its range.
    """
    where = f"synthetic trace: services.{name}"
    keys = [each.name for each in fields(AddonService) if each.name != "name"]
    if not isinstance(given, Mapping) or set(given) != set(keys):
        found = ", ".join(map(str, given)) if isinstance(given, Mapping) else repr(given)
        raise TraceError(f"{where}: found {excerpt(found, 300)}, expected the keys {', '.join(keys)}")
    try:
        made = AddonService(name=name, **given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise TraceError(f"{where}.{first['loc'][0]}: found {excerpt(repr(first['input']))}; {first['msg']}") from None
    if made.lora_names < len(made.loras_per_request):
        raise TraceError(f"{where}.lora_names={made.lora_names}, expected at least {len(made.loras_per_request)}")
    others, weight = made.other_controlnets
    if not any(made.loras_per_request) or (others and not weight):
        raise TraceError(f"{where}: loras_per_request or other_controlnets: found weights of 0, expected some above 0")
    return made
