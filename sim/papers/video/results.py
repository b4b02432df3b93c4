"""Results of the replayed video runs: errors, and every request of a log, as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from mezzotint.backends.base import BackendError
from mezzotint.sim.core.errors import ConfigError
from mezzotint.sim.papers.study import Results
from mezzotint.sim.papers.video.replay import Machine, Replayed
from mezzotint.sim.papers.video.rows import MEASURES, LoggedRun, read_folder

LIMIT = 0.03
"""Error that the page counts as close."""

SAME_S = 1.5
"""Seconds within which two starts are the same: the polls of a log are not known to the second."""

BASELINE = "super_p95"
"""Policy that the others are compared with on the same machine and workload."""


def make(folder: Path) -> dict[str, Any]:
    """Replay every run of ``folder`` and return the content of the JSON file.

    A run that cannot be replayed is skipped.

    Raises:
        ConfigError: the folder cannot be read, or none of its runs be replayed.
    """
    content = read_folder(folder)
    machine, done, skipped = Machine(content), [], list(content.skipped)
    for run in tqdm(content.runs, unit="run", desc="video", disable=None):
        try:
            done.append(result(machine, run))
        except (ConfigError, BackendError) as error:
            skipped.append(f"{run.name}, {run.policy.name}: {error}")
    if not done:
        raise ConfigError(f"{folder}: none of its runs can be replayed; the last is {skipped[-1]}")
    return {"folder": folder.name, "runs": done, "changes": changes(done), "skipped": skipped}


def result(machine: Machine, run: LoggedRun) -> dict[str, Any]:
    """Replay ``run`` and compare it with what was measured."""
    ours = machine.replay(run)
    facts: dict[str, Any] = {
        "name": run.name,
        "groups": run.groups,
        "degree": run.degree,
        "requests": run.requests,
        "rate_rps": run.rate_rps,
        "policy": run.policy.name,
        "estimates": run.policy.estimates,
        "seconds": {
            size: {"believed": video.believed_s, "npus": video.gpu_s[run.degree], "answer": video.answer_s}
            for size, video in machine.videos(run).items()
        },
        "measured": dict(run.measured),
        "ours": ours.statistics,
        "error": _errors(ours, run),
        "preemptions": {"measured": run.preemptions, "ours": int(ours.preemptions.sum())},
    }
    return facts | (_of_log(machine, run, ours) if run.log else {})


def _of_log(machine: Machine, run: LoggedRun, ours: Replayed) -> dict[str, Any]:
    """Return every request of a log beside ours, and the replay on its own logged seconds."""
    rules, equal = machine.rules_alone(run), Machine(machine.folder, {}).rules_alone(run)
    normal = [number for number, row in enumerate(run.log) if row.queue == "normal" and not ours.is_tail[number]]
    return {
        "rules_alone": _of_rules(rules, run, normal),
        "equal_steps": _of_rules(equal, run, normal),
        "same_tails": [row.queue == "tail" for row in run.log] == ours.is_tail.tolist(),
        "each": [
            {
                "request": row.request,
                "size": row.size,
                "queue": row.queue,
                "measured_s": row.e2e_s,
                "ours_s": round(float(ours.latency_s[number]), 3),
                "rules_alone_s": round(float(rules.latency_s[number]), 3),
            }
            for number, row in enumerate(run.log)
        ],
    }


def _of_rules(rules: Replayed, run: LoggedRun, normal: Sequence[int]) -> dict[str, Any]:
    """Return how far a replay on the logged seconds is from the log."""
    from_s = np.array([row.arrival_s + row.wait_s for row in run.log])
    same = np.abs(rules.start_s - from_s) <= SAME_S
    return {
        "ours": rules.statistics,
        "error": _errors(rules, run),
        "same_starts": int(same[normal].sum()),
        "normals": len(normal),
        "furthest_s": round(float(np.abs(rules.latency_s - [row.e2e_s for row in run.log]).max()), 3),
    }


def _errors(ours: Replayed, run: LoggedRun) -> dict[str, float]:
    """Return ours over measured less one, by the measures that are known."""
    return {name: ours.statistics[name] / run.measured[name] - 1 for name in MEASURES if name in run.measured}


def changes(runs: Sequence[Results]) -> list[dict[str, Any]]:
    """Return the change of p95 from BASELINE to each other policy of the same machine and workload."""
    found = []
    for base in runs:
        for run in runs:
            same = all(run[key] == base[key] for key in ("groups", "degree", "requests", "rate_rps"))
            if base["policy"] != BASELINE or run["policy"] == BASELINE or not same or "each" in run:
                continue
            if "p95" in run["measured"] and "p95" in base["measured"]:
                change = {of: run[of]["p95"] / base[of]["p95"] - 1 for of in ("measured", "ours")}
                found.append({"name": run["name"], "policy": run["policy"], "estimates": run["estimates"]} | change)
    return found
