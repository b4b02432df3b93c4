"""Overrides as Hydra reads them."""

from mezzotint.sim.run.config.compose import compose_config, resolve_config
from mezzotint.sim.run.config.options import prepare_overrides


def test_kinds_of_gpus_are_read_whatever_their_case() -> None:
    """A choice alone, in a sweep, and in pools; other names are the user's."""
    as_listed, in_capitals = (
        resolve_config(compose_config(prepare_overrides(["run.dir=out", f"cluster={name}"])))
        for name in ("h100", "H100")
    )
    assert as_listed == in_capitals
    assert prepare_overrides(["cluster=H100,A100,Mine", "system=H100"]) == ["cluster=h100,a100,Mine", "system=H100"]
