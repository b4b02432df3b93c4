"""A trace's facts as aligned lines of text."""

from typing import Any

from traces.table.validation import shown

Facts = dict[str, Any]
Lines = list[tuple[str, str]]

UNKNOWN = "unknown"


def render(facts: Facts) -> str:
    """`describe`'s facts as aligned lines of text."""
    lines = [
        ("trace", facts["name"]),
        ("source", facts["source"]),
        ("requests", f"{facts['requests']:,}"),
        *_rhythm(facts),
        *_users(facts["users"], facts["inequality"]),
        *_sessions(facts["sessions"]),
        *_repeats(facts["prompts"]),
        *_nearest(facts["nearest"]),
        *_coverage(facts["coverage"]),
        *_likeness(facts["likeness"]),
        *_survival(facts["survival"]),
    ]
    for what in ("sizes", "steps", "images"):
        values = ", ".join(f"{value} {share:.1%}" for value, share in facts[what]["most"].items())
        more = facts[what]["distinct"] - len(facts[what]["most"])
        lines.append((what, (values or UNKNOWN) + (f", and {more} more" if more > 0 else "")))
    for what, label in (("base_model", "base models"), ("controlnets", "controlnets"), ("loras", "loras")):
        if facts[what]:
            lines.append((label, _popularity(facts[what])))
    lines.extend(_addons(facts["addons"]))
    lines.append(("null columns", ", ".join(facts["null_columns"]) or "none"))
    lines.append(("digest", facts["digest"]))
    lines.extend((f"note {key}", shown(str(value), 200)) for key, value in facts["notes"].items())
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)


def _rhythm(facts: Facts) -> Lines:
    found = facts["arrivals"]
    if found is None:
        return [("span", f"{UNKNOWN}: the source has an order and no times")]
    rate = "" if facts["rate_rpm"] is None else f", {facts['rate_rpm']:.3g} requests/min"
    lines = [("span", f"{facts['span_s']:,.1f} s ({facts['span_s'] / 3600:.2f} h){rate}")]
    if found["gap_cv"] is not None:
        windows = ", ".join(f"{value:.1f} by {window}" for window, value in found["dispersion"].items())
        spread = f"; variance over mean of counts {windows}" if windows else ""
        lines.append(("burstiness", f"gaps vary by {found['gap_cv']:.2f} of their mean (Poisson 1){spread}"))
    if found["busiest_hour_over_mean"] is not None:
        low, high = found["quietest_hour_over_mean"], found["busiest_hour_over_mean"]
        lines.append(("day cycle", f"{low:.2f} to {high:.2f} times the mean rate by the hour"))
    return lines


def _users(users: Facts | None, inequality: Facts | None) -> Lines:
    if users is None or inequality is None:
        return [("users", UNKNOWN)]
    slope = "" if inequality["zipf_slope"] is None else f"; rank-frequency slope {inequality['zipf_slope']:.2f}"
    text = (
        f"{users['count']:,}; requests each: mean {users['requests_mean']:.1f}, most {users['requests_max']:,}; the ten"
        f" most active make {users['top_ten_share']:.1%}{slope}; {users['unknown_share']:.1%} of requests without a"
        " user"
    )
    return [("users", text)]


def _sessions(found: Facts | None) -> Lines:
    if found is None:
        return [("sessions", UNKNOWN)]
    most = ", ".join(f"{level[1:]} % {value:g}" for level, value in found["requests_quantiles"].items())
    pause = f"pauses up to {found['gap_s'] / 60:.0f} min"
    lines = [("sessions", f"{found['count']:,} ({pause}); {found['requests_mean']:.1f} requests each ({most})")]
    if found["gap_quantiles_s"]:
        gap = (
            f"{found['gap_quantiles_s']['p50']:.0f} s between requests in the median ({found['gap_mean_s']:.0f} s mean)"
        )
        if found["repeat_share"] is not None:
            gap += f"; {found['repeat_share']:.1%} repeat the prompt before"
            gap += f", {found['edit_share']:.1%} share half its words"
        lines.append(("in a session", gap))
    return lines


def _repeats(found: Facts | None) -> Lines:
    if found is None:
        return [("prompts", "none")]
    same = found["repeat_same_user_share"]
    by_whom = "" if same is None else f", {same:.1%} of them by the same user"
    return [("prompts", f"{found['distinct']:,} distinct; {found['repeat_share']:.1%} repeat an earlier one{by_whom}")]


def _nearest(found: Facts | None) -> Lines:
    if found is None:
        return []
    how = "a sample of " if found["sampled"] else ""
    above = ", ".join(f"{share:.1%} > {limit}" for limit, share in found["share_above"].items())
    quartiles = " / ".join(f"{found['quantiles'][level]:.2f}" for level in ("p25", "p50", "p75"))
    looked = f"{found['encoder']}, {how}{found['looked_up']:,} requests looked up"
    lines = [("nearest earlier", f"{looked}: similarity {quartiles} (quartiles); {above}")]
    if found["lag_quantiles"]:
        age = "" if found["age_quantiles_s"] is None else f"median {found['age_quantiles_s']['p50']:,.0f} s, "
        lag = (
            f"{found['lag_quantiles']['p50']:.0f} requests before; {found['hits_same_user_share']:.1%} by the same user"
        )
        lines.append(("its age", f"of hits > {min(found['share_above'])}: {age}{lag}"))
    if found["cache_hits_young_share"] is not None:
        young = f"{found['cache_hits_young_share']:.1%} of them at most 4 h old (MoDM, Fig. 15: over 90 %)"
        lines.append(("hits of a cache", f"of the last {found['cache']:,}: {found['cache_hit_rate']:.1%}; {young}"))
    return lines


def _coverage(found: Facts | None) -> Lines:
    lines = []
    for name, label in (("others", "another's prompt"), ("recent", "anybody's latest")):
        if found and found[name]:
            limit = "0.45"
            shares = ", ".join(f"{by[limit]:.1%} of {int(size):,}" for size, by in found[name].items())
            lines.append((label, f"found above {limit} by {shares}"))
    return lines


def _likeness(found: Facts | None) -> Lines:
    if found is None:
        return []
    means = ", ".join(f"{group} {one['mean']:.2f}" for group, one in found.items() if isinstance(one, dict))
    return [("likeness", f"mean cosine: {means}")] if means else []


def _survival(found: Facts | None) -> Lines:
    if found is None:
        return []
    lines = []
    for eps in ("0.01", "0.2", "0.5"):
        if (share := found["left"].get(f"eps {eps}, top 10%")) is not None:
            left = f"{share[0]:.0%} still are on day 2, {share[-1]:.0%} on day {found['days'][-1]}"
            lines.append((f"clusters eps {eps}", f"of the top 10 %, {left}"))
    return lines


def _popularity(found: Facts) -> str:
    shares = ", ".join(f"top {rank} {share:.1%}" for rank, share in found["share_of_top"].items())
    each = ", ".join(f"{number}: {share:.1%}" for number, share in found["per_request"].items() if share)
    return f"{found['distinct']:,} distinct; {shares}; per request {each}"


def _addons(found: Facts | None) -> Lines:
    if found is None:
        return []
    lines = []
    if found["nodes"]:
        nodes = found["nodes"]
        each = f"{nodes['requests_median']:,.0f} requests in the median, {nodes['requests_max']:,} at most"
        lines.append(("nodes", f"{nodes['count']:,}; {each}"))
    if found["together"]:
        lines.append(("together", ", ".join(f"{names} {share:.1%}" for names, share in found["together"].items())))
    for kind in ("controlnets", "loras"):
        if kind in found:
            loads = ", ".join(f"{load:.3g} of {size}" for size, load in found[kind]["loads_per_request"].items())
            alone = found[kind]["distinct_per_request_of_a_node"]
            lines.append((f"{kind} cached", f"loads per request of an LRU cache: {loads}; of all: {alone:.3g}"))
    return lines
