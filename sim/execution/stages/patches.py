"""Batches of patches on groups of GPUs: requests of several sizes share the steps of a denoiser."""

from mezzotint.sim.core.culprit import class_name
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.core.workload import check_equal_steps
from mezzotint.sim.execution.patched import PatchedSteps
from mezzotint.sim.execution.stages.costs import Form
from mezzotint.sim.protocols import FeatureCache, GroupPolicy, Run, Steps


def bind_patches(
    run: Run, batching: Steps, policy: GroupPolicy, form: Form, feature_cache: FeatureCache | None
) -> PatchedSteps:
    """Return the steps of patches of ``batching``, bound.

    Args:
        policy: who forms the batches.
        form: the stages of a request whose plan names none.

    Raises ConfigError for another ``batching``, and for what does not go with patches.
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
    for key, is_found in (("feature_cache", feature_cache is not None), ("addons", run.workload.addons is not None)):
        if is_found:
            remedy = "feature_cache=none" if key == "feature_cache" else "addons=ignore"
            raise ConfigError(
                f"{key}: found beside batching=patched on groups of GPUs, where nobody measured both; add {remedy}, or "
                "choose executor=continuous-batching"
            )
    if run.backend.live:
        raise ConfigError(
            "batching: found patches beside a live backend, whose groups of GPUs run no batch; leave it out "
            "(~batching), or choose executor=continuous-batching"
        )
    check_equal_steps(
        run.workload,
        run.models.values(),
        run.cluster.kinds.values(),
        "batching=patched",
        "leave it out, or choose a profile without step_shares",
    )
    batching.bind(run, lambda _: None)
    if any(backend.group_sizes() for backend in run.cluster.kinds.values()):
        what = "speedup of a step of patches on several GPUs"
        run.assume(what, "that of the whole image that gains least", "assumed: nobody measured patches on several GPUs")
    return batching
