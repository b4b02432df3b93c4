"""On which node of which service a request was served, where a trace tells it: names of the form service/node/row."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes of a trace of n requests.

    Attributes:
        of: (n,) the number of each request's node.
        names: (nodes,) service/node, in the order in which they first occur.
    """

    of: Indices
    names: list[str]


def placed(service: str, node: pa.Array, row: pa.Array) -> pa.Array:
    """Names of requests, (n,): service/node/row, of (n,) names each."""
    return pc.binary_join_element_wise(pa.scalar(service), node, row, "/")


def nodes(request_id: pa.ChunkedArray) -> Nodes | None:
    """The nodes that the names of requests, (n,), tell; None where one of them is not service/node/row."""
    parts = pc.split_pattern(request_id, "/", max_splits=2)
    if not len(request_id) or not pc.all(pc.equal(pc.list_value_length(parts), 3)).as_py():
        return None
    head = pc.binary_join_element_wise(pc.list_element(parts, 0), pc.list_element(parts, 1), "/")
    coded = head.combine_chunks().dictionary_encode()
    return Nodes(coded.indices.to_numpy().astype(np.int64), coded.dictionary.to_pylist())
