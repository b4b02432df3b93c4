"""`mezzotint reproduce elastic`: GF-DiT's simulator of elastic serving, compared with ours request by request."""
