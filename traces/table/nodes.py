"""Nodes of a service that served the requests, from request names of the form service/node/row."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def placed(service: str, node: pa.Array, row: pa.Array) -> pa.Array:
    """Return names of requests, (n,): service/node/row, from (n,) names of nodes and rows."""
    return pc.binary_join_element_wise(pa.scalar(service), node, row, "/")


def nodes(request_id: pa.ChunkedArray) -> npt.NDArray[np.int64] | None:
    """Return the number of each request's node, (n,), from 0 in order of first occurrence.

    None if a name is not service/node/row.
    """
    parts = pc.split_pattern(request_id, "/", max_splits=2)
    if not len(request_id) or not pc.all(pc.equal(pc.list_value_length(parts), 3)).as_py():
        return None
    head = pc.binary_join_element_wise(pc.list_element(parts, 0), pc.list_element(parts, 1), "/")
    return np.asarray(head.combine_chunks().dictionary_encode().indices.to_numpy(), np.int64)
