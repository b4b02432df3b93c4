"""One YAML file per choice, in a folder per group; Hydra searches it as ``pkg://mezzotint.conf``."""
