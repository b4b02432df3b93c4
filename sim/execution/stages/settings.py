"""Settings of executor=stages that do not go together."""

from collections.abc import Mapping, Sequence

from mezzotint.sim.addons.service_gpus import ServiceGpus
from mezzotint.sim.addons.shared_servers import refuse_feature_cache
from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import Stage
from mezzotint.sim.protocols import ControlNetPlacement, Estimates, FeatureCache, GroupPolicy, Steps


def check_batches(
    stages: str | Sequence[Stage], policy: GroupPolicy | None, feature_cache: FeatureCache | None
) -> None:
    """Raise ConfigError for a stage that requests share (Stage.max_batch), if its batches cannot be run."""
    for stage in () if isinstance(stages, str) else stages:
        if stage.max_batch > 1 and (policy is None or not policy.batches_stages):
            who = "no group policy" if policy is None else f"the group policy {class_name(policy)}"
            raise ConfigError(
                f"executor.stages: found max_batch={stage.max_batch} of {stage.component} beside {who}, which runs "
                "each request of it alone; choose group_policy=pools or colocated, or leave max_batch out"
            )
        if stage.max_batch > 1 and stage.denoises and feature_cache is not None:
            raise ConfigError(
                f"feature_cache: found a {stage.component} with max_batch={stage.max_batch} (executor.stages), and "
                "steps that reuse features are not batched on groups of GPUs; add feature_cache=none, leave "
                "max_batch out, or choose executor=continuous-batching"
            )


def check_feature_cache(policy: GroupPolicy, placement: ControlNetPlacement | ServiceGpus | None) -> None:
    """Raise ConfigError if steps that reuse features do not go with ``policy``, or with where ControlNets run."""
    if policy.needs_equal_steps:
        raise ConfigError(
            f"feature_cache: steps that reuse features are shorter, and the group policy ({class_name(policy)}) takes "
            "all as equal; add feature_cache=none, or choose another, such as group_policy=rounds"
        )
    refuse_feature_cache(placement)


def refuse_unused(of_groups: Mapping[str, object], estimates: Estimates | None, batching: Steps | None) -> None:
    """Raise ConfigError for settings of groups without a group policy, when each request runs on one GPU.

    Args:
        of_groups: setting of the executor -> its value: of forming a group, its speedup, or a move between groups.
    """
    for name, value in of_groups.items():
        if value:
            raise ConfigError(
                f"executor.{name}: found {value}, and without a group policy each request stays on one GPU; add "
                "group_policy= and scheduler=stages, or leave it out"
            )
    for part, name, does in (
        (estimates, "estimates", "only a group policy reads"),
        (batching, "batching", "only a group policy launches"),
    ):
        if part is not None:
            raise ConfigError(
                f"{name}: found {type(part).__name__}, which {does}, and none is chosen; add group_policy= and "
                f"scheduler=stages, or leave it out (~{name})"
            )
