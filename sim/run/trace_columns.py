"""The columns of a trace that a run reads, and those that decide nothing, each with the reason."""

from typing import Any

from mezzotint.sim.cache.key import COLUMN
from mezzotint.sim.core.culprit import is_ours
from mezzotint.sim.engine import Engine
from mezzotint.sim.frontend.by_base_model import ByBaseModel
from mezzotint.sim.run.config.settings import Settings
from mezzotint.sim.run.sampling import images_mode
from mezzotint.sim.scheduling.disciplines.edf import Edf
from mezzotint.sim.scheduling.disciplines.fair import Fair
from mezzotint.traces.arrivals.trace_clock import TraceClock
from mezzotint.traces.table.ingest import ORDER_ONLY
from mezzotint.traces.table.trace import Trace

SIMILARITY = "similarity of prompts"
"""Assumption of a run that compares prompts."""

BY_SHAPE = ("width", "height", "steps", "frames")


def columns_read(trace: Trace, settings: Settings, engine: Engine) -> dict[str, Any]:
    """Return the columns with a value in ``trace`` that decide the results of a finished run, and the others.

    Returns:
        ``used``: names of columns. ``unused``: name -> why it decides nothing. ``left_out``: columns of the source
        that the trace does not have, as far as its importer noted them.
    """
    reasons = _reasons(trace, settings, engine)
    if not trace.requests_of_several_images:
        del reasons["images"]
    present = [name for name in trace.known.column_names if name in reasons and trace.has(name)]
    if trace.notes.get("arrival_s") == ORDER_ONLY:
        present.remove("arrival_s")
    return {
        "used": [name for name in present if not reasons[name]],
        "unused": {name: reasons[name] for name in present if reasons[name]},
        "left_out": list(trace.notes.get("columns_left_out", ())),
    }


def _reasons(trace: Trace, settings: Settings, engine: Engine) -> dict[str, str]:
    """Return for each column why the run does not read it; empty if it does."""
    live = engine.backend.live
    compares = any(noted.what == SIMILARITY for noted in engine.record.assumptions)
    arrivals = str(settings.arrivals.get("_target_"))
    keeps_times = arrivals.endswith(f".{TraceClock.__name__}") or not is_ours(arrivals)
    key = {COLUMN.get(part, part) for part in (getattr(settings, "cache", None) or {}).get("key", ())}
    sampling = engine.workload.sampling
    kinds = [kind for kind in (() if sampling is None else sampling.kinds) if kind is not None]
    discipline = getattr(engine.scheduler, "discipline", None)
    by_priority = isinstance(discipline, Fair) and discipline.within == "priority"
    no_cost = "costs nothing beside the seconds of the profile"
    reasons = dict.fromkeys(BY_SHAPE, "" if settings.shapes == "trace" else "shapes=model")
    reasons |= dict.fromkeys(("controlnets", "loras"), "" if settings.addons == "serve" else "addons=ignore")
    reasons |= {
        "arrival_s": "" if keeps_times else f"arrivals are {arrivals.rpartition('.')[2]}'s",
        "prompt": "" if compares or live else "no part compares prompts",
        "images": "" if images_mode(settings.images, trace) != "first" else "images=first",
        "guidance": "" if any(kind.guided is not None for kind in kinds) else no_cost,
        "negative_prompt": "" if any(kind.negative for kind in kinds) else no_cost,
        "input_images": "" if any(kind.input_images for kind in kinds) else no_cost,
        "strength": "" if any(kind.strength is not None for kind in kinds) else no_cost,
        "seed": "" if live else "no noise is drawn",
        "gen_s": "" if settings.backend.get("service") == "trace" else "backend.service is not trace",
        "slo_s": "",
        "priority": "" if isinstance(discipline, Edf) or by_priority else "discipline is not edf",
        "base_model": "" if isinstance(engine.frontend, ByBaseModel) else "frontend is not by-base-model",
        "user_id": "" if isinstance(discipline, Fair) else "no part tells users apart",
        "latency_s": "a measured result",
    }
    return {name: "" if name in key - {*BY_SHAPE} else reason for name, reason in reasons.items()}
