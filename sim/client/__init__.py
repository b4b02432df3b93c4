"""Clients: the side of a request that the server does not see."""
