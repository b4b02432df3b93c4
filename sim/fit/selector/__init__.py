"""`mezzotint calibrate selector`: from which similarity on K steps may be skipped, measured on real images."""
