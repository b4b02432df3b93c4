"""Tenants: the users of a trace, as limits and shares tell them apart."""

USER = "user_id"
"""The trace column that tells tenants apart."""

NO_USER = -1
"""Code of requests without a user, which are one tenant."""

TOO_MANY_QUEUED = "HTTP 429: too many requests of its tenant wait"
TOO_MANY_IN_FLIGHT = "HTTP 429: too many requests of its tenant are in flight"
LIMIT_REASONS = TOO_MANY_QUEUED, TOO_MANY_IN_FLIGHT
"""Reasons of the requests that a limit of their tenant discards."""
