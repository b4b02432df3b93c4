"""The configuration of each policy of the reference tables, by its name there."""

import re
from collections.abc import Callable, Mapping

GPUS = 8
"""GPUs of every table."""

PRIORITIES = {"S": 100, "M": 50, "L": 0}
"""Priority by size class, where the workload has none of its own."""

LAUNCH_MS, MOVE_MS = 0.005, 3.0
"""Launch delay and migration of the tables with stages."""

STAGES = (
    "{component: text-encoder, max_degree: 1}",
    "{component: dit_prepare}",
    "{component: timestep_prepare}",
    "{component: denoiser}",
    "{component: vae, max_degree: 1}",
    "{component: finalize, max_degree: 1}",
)
"""The tasks of a request in the tables with stages."""

Sizes = Mapping[str, str]
"""Size class -> WIDTHxHEIGHT."""


def overrides(policy: str, sizes: Sizes, priorities: Mapping[str, float] = PRIORITIES) -> list[str] | None:
    """Return the overrides of ``policy``, all times in milliseconds; None if we have nothing like it.

    A name is that of a rule with suffixes: ``_migrate50`` charges 50 ms a move, ``_chunk5`` decides every five steps,
    ``_stages`` makes each stage a task of its own.
    """
    found = re.fullmatch(r"(.+?)(?:_migrate(\d+))?(?:_chunk(\d+))?(_stages)?", policy)
    assert found is not None
    name, migrate, chunk, stages = found.groups()
    words = _rule(name, sizes, priorities)
    is_edf = name.startswith("edf_")
    if words is None or (chunk and not is_edf):
        return None
    if migrate:
        words.append(f"executor.migration_s={migrate}")
    if chunk:
        words.append(f"group_policy.steps={chunk}")
    if stages:
        words += [f"executor.stages=[{','.join(STAGES)}]", f"executor.launch_s={LAUNCH_MS}"]
        if is_edf:  # nothing moves between fixed groups
            words += [f"executor.migration_s={MOVE_MS}", "group_policy.one_gpu_stages=lowest"]
    return words


def _rule(name: str, sizes: Sizes, priorities: Mapping[str, float]) -> list[str] | None:
    by_size = "{" + ", ".join(f"{sizes[each]}: {value}" for each, value in priorities.items() if each in sizes) + "}"
    if found := re.fullmatch(r"(static|fcfs|sjf|srtf)_sp(\d+)", name):
        kind, degree = found[1], int(found[2])
        words = ["system=fixed-groups", f"group_policy.groups={GPUS // degree}x{degree}"]
        if kind != "static":
            words.append("group_policy.assignment=least-backlog")
        return [*words, f"group_policy.order={kind}"] if kind in ("sjf", "srtf") else words
    rules: dict[str, Callable[[], list[str]]] = {
        "rssp_split": lambda: ["system=rssp-split", *_degrees(sizes)],
        "rssp_shared": lambda: ["system=rssp-shared", *_degrees(sizes)],
        "load_adaptive": lambda: ["system=load-adaptive", *_milliseconds("busy_gap_s=120", "busy_hold_s=60")],
        "prio_load_adaptive": lambda: [
            *rules["load_adaptive"](),
            "group_policy.order=priority",
            f"+group_policy.priority_by_size={by_size}",
        ],
        "edf_greedy": lambda: ["system=edf-best-fit", "group_policy=edf-greedy"],
        "edf_best_fit": lambda: ["system=edf-best-fit"],
        "tetriserve_round": lambda: ["system=rounds", *_milliseconds("round_s=2")],
        "tetriserve_round_noscale": lambda: [*rules["tetriserve_round"](), "group_policy.scale_up=false"],
        "clean_edf_demote": lambda: [
            "system=preempt-class",
            f"group_policy.urgent_sizes=[{sizes['S']}]",
            f"group_policy.preemptible_sizes=[{sizes['L']}]",
            f"+group_policy.priority_by_size={by_size}",
            *_milliseconds("starved_s=60", "max_aside_s=600", "move_s=0.003"),
        ],
        "clean_edf_pause": lambda: [*rules["clean_edf_demote"](), "group_policy.give_way=pause"],
    }
    return rules[name]() if name in rules else None


def _degrees(sizes: Sizes) -> list[str]:
    """Return RSSP's degrees: one GPU for the smallest size, four for the others."""
    each = ", ".join(f"{size}: {1 if name == 'S' else 4}" for name, size in sizes.items())
    return ["~group_policy.degree_by_size", f"+group_policy.degree_by_size={{{each}}}"]


def _milliseconds(*settings: str) -> list[str]:
    """Return settings of the policy in seconds as overrides in milliseconds."""
    pairs = (each.split("=") for each in settings)
    return [f"group_policy.{name}={float(value) * 1000:g}" for name, value in pairs]
