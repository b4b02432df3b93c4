"""Tables and logs of others that the repository holds, for the studies that compare with them."""

from pathlib import Path

from mezzotint.sim.core.errors import ConfigError


def committed(oracle: str, what: str) -> Path:
    """Return the folder ``oracle`` of the clone that this code runs from; ``what`` it holds is for the error.

    Raises:
        ConfigError: this code runs from no clone.
    """
    folder = Path(__file__).resolve().parents[2] / oracle
    if not folder.is_dir():
        raise ConfigError(
            f"DIR: found none, and {oracle} is in a clone of the repository alone; name a folder of {what}, or run "
            "this in a clone"
        )
    return folder
