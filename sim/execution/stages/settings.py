"""Settings of executor=stages: refuse those that do not go together, and take batches of patches."""

from collections.abc import Mapping, Sequence

from mezzotint.sim.addons.service_gpus import ServiceGpus
from mezzotint.sim.addons.shared_servers import refuse_feature_cache
from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.plan import Stage
from mezzotint.sim.core.workload import check_equal_steps
from mezzotint.sim.execution.patched import PatchedSteps
from mezzotint.sim.execution.stages.costs import Form
from mezzotint.sim.protocols import ControlNetPlacement, Estimates, FeatureCache, GroupPolicy, Run, Steps


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
    for name, part, does in (("estimates", estimates, "reads"), ("batching", batching, "launches")):
        if part is not None:
            raise ConfigError(
                f"{name}: found {type(part).__name__}, which only a group policy {does}, and none is chosen; add "
                f"group_policy= and scheduler=stages, or leave it out (~{name})"
            )


def bind_patches(
    run: Run, batching: Steps, policy: GroupPolicy, form: Form, feature_cache: FeatureCache | None
) -> PatchedSteps:
    """Return ``batching``, bound. Raises ConfigError for another than of patches, and for what does not go with them.

    Args:
        form: the stages of a request whose plan names none.
    """
    if not isinstance(batching, PatchedSteps):
        raise ConfigError(
            f"batching: found {class_name(batching)}, and groups of GPUs batch requests of one size without it; leave "
            "it out (~batching), or choose batching=patched"
        )
    is_shared = isinstance(form, list) and any(stage.denoises and stage.max_batch > 1 for stage in form)
    if not is_shared and policy.max_batch == 1:
        raise ConfigError(
            f"batching: found patches beside the group policy {class_name(policy)}, which forms no batches here; "
            "choose group_policy=tetriserve with max_batch, or pools or colocated with max_batch of the denoiser in "
            "executor.stages, or leave it out (~batching)"
        )
    for key, found, off in (("feature_cache", feature_cache, "none"), ("addons", run.workload.addons, "ignore")):
        if found is not None:
            raise ConfigError(
                f"{key}: found beside batching=patched on groups of GPUs, where nobody measured both; add {key}={off}, "
                "or choose executor=continuous-batching"
            )
    if run.backend.live:
        raise ConfigError(
            "batching: found patches beside a live backend, whose groups of GPUs run no batch; leave it out "
            "(~batching), or choose executor=continuous-batching"
        )
    remedy = "leave it out, or choose a profile without step_shares"
    check_equal_steps(run.workload, run.models.values(), run.cluster.kinds.values(), "batching=patched", remedy)
    batching.bind(run, lambda _: None)
    if any(backend.group_sizes() for backend in run.cluster.kinds.values()):
        what = "speedup of a step of patches on several GPUs"
        run.assume(what, "that of the whole image that gains least", "assumed: nobody measured patches on several GPUs")
    return batching
