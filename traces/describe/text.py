"""A trace's facts as aligned lines of text."""

from typing import Any


def render(facts: dict[str, Any]) -> str:
    """`describe`'s facts as aligned lines of text."""
    lines = [
        ("trace", facts["name"]),
        ("source", facts["source"]),
        ("requests", f"{facts['requests']:,}"),
        *_rhythm(facts),
        *_people(facts["users"], facts["inequality"], facts["sessions"]),
        *_prompts(facts),
    ]
    for what in ("sizes", "steps", "images"):
        values = ", ".join(f"{value} {share:.1%}" for value, share in facts[what]["most"].items())
        more = facts[what]["distinct"] - len(facts[what]["most"])
        lines.append((what, (values or "unknown") + (f", and {more} more" if more > 0 else "")))
    for what, label in (("base_model", "base models"), ("controlnets", "controlnets"), ("loras", "loras")):
        if facts[what]:
            lines.append((label, _popularity(facts[what])))
    lines.append(("null columns", ", ".join(facts["null_columns"]) or "none"))
    lines.append(("digest", facts["digest"]))
    lines.extend((f"note {key}", str(value)) for key, value in facts["notes"].items())
    width = max(len(label) for label, _ in lines)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in lines)


def _rhythm(facts: dict[str, Any]) -> list[tuple[str, str]]:
    rate = "" if facts["rate_rpm"] is None else f", {facts['rate_rpm']:.3g} requests/min"
    lines = [("span", f"{facts['span_s']:,.1f} s ({facts['span_s'] / 3600:.2f} h){rate}")]
    found = facts["arrivals"]
    if found["gap_cv"] is None:
        return lines
    windows = ", ".join(f"{value:.1f} by {window}" for window, value in found["dispersion"].items())
    spread = f"; variance over mean of counts {windows}" if windows else ""
    lines.append(("burstiness", f"gaps vary by {found['gap_cv']:.2f} of their mean (Poisson 1){spread}"))
    if found["busiest_hour_over_mean"] is not None:
        low, high = found["quietest_hour_over_mean"], found["busiest_hour_over_mean"]
        lines.append(("day cycle", f"{low:.2f} to {high:.2f} times the mean rate by the hour"))
    return lines


def _people(
    users: dict[str, Any] | None, inequality: dict[str, Any] | None, sessions: dict[str, Any] | None
) -> list[tuple[str, str]]:
    if users is None or inequality is None or sessions is None:
        return [("users", "unknown"), ("sessions", "unknown")]
    slope = "" if inequality["zipf_slope"] is None else f"; rank-frequency slope {inequality['zipf_slope']:.2f}"
    most = ", ".join(f"{level[1:]} % {value:g}" for level, value in sessions["requests_quantiles"].items())
    lines = [
        (
            "users",
            f"{users['count']:,}; requests each: mean {users['requests_mean']:.1f}, most"
            f" {users['requests_max']:,}; the ten most active make {users['top_ten_share']:.1%}{slope};"
            f" {users['unknown_share']:.1%} of requests without a user",
        ),
        (
            "sessions",
            f"{sessions['count']:,} (pauses up to {sessions['gap_s'] / 60:.0f} min);"
            f" {sessions['requests_mean']:.1f} requests each ({most})",
        ),
    ]
    if sessions["gap_quantiles_s"]:
        lines.append(
            (
                "in a session",
                f"{sessions['gap_quantiles_s']['p50']:.0f} s between requests in the median"
                f" ({sessions['gap_mean_s']:.0f} s mean)"
                + (
                    ""
                    if sessions["repeat_share"] is None
                    else f"; {sessions['repeat_share']:.1%} repeat the prompt before,"
                    f" {sessions['edit_share']:.1%} share half its words"
                ),
            )
        )
    return lines


def _prompts(facts: dict[str, Any]) -> list[tuple[str, str]]:
    prompts, near, alike, left = (facts[name] for name in ("prompts", "nearest", "likeness", "survival"))
    if prompts is None:
        return [("prompts", "none")]
    same = prompts["repeat_same_user_share"]
    by_whom = "" if same is None else f", {same:.1%} of them by the same user"
    lines = [
        ("prompts", f"{prompts['distinct']:,} distinct; {prompts['repeat_share']:.1%} repeat an earlier one{by_whom}")
    ]
    if near:
        how = "a sample of " if near["sampled"] else ""
        above = ", ".join(f"{share:.1%} > {limit}" for limit, share in near["share_above"].items())
        lines.append(
            (
                "nearest earlier",
                f"{near['encoder']}, {how}{near['looked_up']:,} requests looked up: similarity"
                f" {near['quantiles']['p25']:.2f} / {near['quantiles']['p50']:.2f} / {near['quantiles']['p75']:.2f}"
                f" (quartiles); {above}",
            )
        )
        if near["age_quantiles_s"]:
            lines.append(
                (
                    "its age",
                    f"of hits > {min(near['share_above'])}: median {near['age_quantiles_s']['p50']:,.0f} s,"
                    f" {near['lag_quantiles']['p50']:.0f} requests; {near['hits_same_user_share']:.1%} by the same"
                    " user",
                )
            )
        if near["cache_hits_young_share"] is not None:
            lines.append(
                (
                    "hits of a cache",
                    f"of the last {near['cache']:,}: {near['cache_hit_rate']:.1%};"
                    f" {near['cache_hits_young_share']:.1%} of them at most 4 h old (MoDM, Fig. 15: over 90 %)",
                )
            )
    if alike:
        means = ", ".join(f"{group} {found['mean']:.2f}" for group, found in alike.items() if isinstance(found, dict))
        lines.append(("likeness", f"mean cosine: {means}"))
    if left:
        for eps in ("0.01", "0.2", "0.5"):
            if (share := left["left"].get(f"eps {eps}, top 10%")) is not None:
                lines.append(
                    (
                        f"clusters eps {eps}",
                        f"of the top 10 %, {share[0]:.0%} still are on day 2,"
                        f" {share[-1]:.0%} on day {left['days'][-1]}",
                    )
                )
    return lines


def _popularity(found: dict[str, Any]) -> str:
    shares = ", ".join(f"top {rank} {share:.1%}" for rank, share in found["share_of_top"].items())
    each = ", ".join(f"{number}: {share:.1%}" for number, share in found["per_request"].items() if share)
    return f"{found['distinct']:,} distinct; {shares}; per request {each}"
