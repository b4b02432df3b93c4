"""`mezzotint reproduce`: the papers' numbers and the simulated ones."""
