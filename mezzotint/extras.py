"""Remedies of errors about packages of an extra that are not installed."""

from importlib.metadata import PackageNotFoundError, requires

INSTALL = "install with: pip install"
"""Begins every such remedy; the scorecard tells an absent package from a failure by it."""


def remedy(extra: str) -> str:
    """Return the command that installs the packages of ``extra``.

    It names the packages: ``mezzotint[extra]`` installs nothing where Mezzotint itself came from a clone or a file.
    """
    try:
        lines = requires("mezzotint") or []
    except PackageNotFoundError:  # a clone on PYTHONPATH
        return f"{INSTALL} -e '.[{extra}]', in a clone"
    packages = [line.partition(";")[0].strip() for line in lines if f'extra == "{extra}"' in line.replace("'", '"')]
    return " ".join([INSTALL, *(f"'{package}'" for package in packages)])
