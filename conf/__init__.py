"""One YAML per choice, grouped as the rooms are; searched by Hydra as ``pkg://conf``."""
