"""Parts that cannot work together, or would do nothing beside the others, are refused by name before the run."""

import pytest

from docs.reference.parts import Part, configuration, made_trace, try_chosen, with_needs
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.run.simulate import simulate


def refusal(*words: str) -> str:
    """Return the words that refuse a run of ``words``, GROUP=CHOICE, with what each needs."""
    return try_chosen(with_needs(*(Part(*word.split("=")) for word in words))).refusal


@pytest.mark.parametrize("controller", ["modm-quality", "modm-throughput", "modm-hindsight", "timetable"])
@pytest.mark.parametrize("scheduler", ["fcfs", "dynamic-batching", "mlperf-batching"])
def test_roles_are_not_ordered_beside_a_scheduler_that_ignores_them(controller: str, scheduler: str) -> None:
    words = refusal(f"scheduler={scheduler}", f"controller={controller}")
    assert words.startswith("scheduler: found ")
    assert "whatever its role" in words


@pytest.mark.parametrize("frontend", ["direct-large", "nirvana", "pinecone", "resumed"])
def test_monitor_of_hits_is_refused_where_hits_have_no_model_of_their_own(frontend: str) -> None:
    """It would do nothing in quality mode, and keep a GPU idle in throughput mode."""
    for controller in ("modm-quality", "modm-throughput", "modm-hindsight"):
        assert "without such hits" in refusal(f"controller={controller}", f"frontend={frontend}")


def test_monitor_that_may_take_the_last_small_gpu_is_refused_where_hits_wait_for_one() -> None:
    for other in ("scheduler=hit-miss", "group_policy=rounds"):
        assert "may leave no GPU with a small model" in refusal(other, "controller=modm-quality")
        assert not refusal(other, "controller=modm-throughput")


def test_scheduler_of_roles_is_refused_without_gpus_in_its_roles() -> None:
    assert "gives misses to the role large" in refusal("scheduler=hit-miss", "allocation=uniform-small")
    assert "gives hits to other roles" in refusal("scheduler=hit-miss", "allocation=uniform-large")
    assert "gives all but hits to the role large" in refusal("scheduler=hit-miss-per-worker", "frontend=direct-small")
    assert not refusal("scheduler=hit-miss-shared", "allocation=uniform-large")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("controlnet_placement=service", "scheduler=fcfs"), "controlnet_placement: found ServiceGpus"),
        (("scheduler=fcfs", "frontend=cascade-sdxs"), "must not mix models in a batch"),
        (("group_policy=rounds", "estimates=perfect", "scheduler=fcfs"), "scheduler: found Fcfs beside the group"),
    ],
)
def test_what_fails_in_the_run_is_an_error_of_the_settings(words: tuple[str, ...], why: str) -> None:
    assert why in refusal(*words)


def test_hits_whose_model_has_no_gpu_left_end_the_run() -> None:
    """Under a group policy, too: they were counted as failed, and the run went on."""
    config = configuration(with_needs(Part("group_policy", "rounds"), Part("controller", "timetable")))
    config["controller"]["at"] = {1.0: {"large": 8}}
    with pytest.raises(ConfigError, match="controller: no GPU is left in a role with sd3-medium"):
        simulate(config, trace=made_trace())
