"""Hold a simulation against the result of a benchmark of the real server."""
