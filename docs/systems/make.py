"""Draw the systems' pictures and fill the pages' tables from the scorecard: ``python docs/systems/make.py``.

A page has its table between the lines ``<!-- scorecard SYSTEM -->`` and ``<!-- end -->``.
"""

import json
import re
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCORECARD = HERE.parents[1] / "results" / "scorecard.json"
BOX_W, BOX_H, GAP, PAD = 134, 58, 34, 12
BOXES: dict[str, list[tuple[str, str]]] = {
    "nirvana": [
        ("prompt", "its text vector"),
        ("match predictor", "search at all?"),
        ("vector index", "nearest prompt"),
        ("selector", "similarity to K"),
        ("latent store", "state after K steps"),
        ("GPU", "steps K to N"),
    ],
    "modm": [
        ("prompt", "its text vector"),
        ("image cache", "nearest image"),
        ("selector", "similarity to K"),
        ("two queues", "hits and misses"),
        ("GPUs", "small or large model"),
        ("monitor", "moves GPUs"),
    ],
    "patchedserve": [
        ("request", "size, deadline"),
        ("router", "fewest pixels"),
        ("queue", "one per GPU"),
        ("slack", "who joins the batch"),
        ("patches", "all sizes, one step"),
        ("reuse", "unchanged patches"),
    ],
    "swiftdiffusion": [
        ("request", "ControlNets, LoRAs"),
        ("group", "a GPU per ControlNet"),
        ("LoRA fetch", "in the background"),
        ("first steps", "without LoRAs"),
        ("merge", "at a step boundary"),
        ("last steps", "with LoRAs"),
    ],
}


def picture(boxes: list[tuple[str, str]]) -> str:
    """Return an SVG of ``boxes`` (name, what it does) in the order of a request, three in a row."""
    width, height = 3 * BOX_W + 2 * GAP + 2 * PAD, 2 * BOX_H + GAP + 2 * PAD
    corners = [(PAD + n % 3 * (BOX_W + GAP), PAD + n // 3 * (BOX_H + GAP)) for n in range(len(boxes))]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" text-anchor="middle">',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#444"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    for (x, y), (name, does) in zip(corners, boxes, strict=True):
        middle = x + BOX_W // 2
        lines += [
            f'<rect x="{x}" y="{y}" width="{BOX_W}" height="{BOX_H}" rx="6" fill="#eef3f8" stroke="#446"/>',
            f'<text x="{middle}" y="{y + 25}" font-size="14" font-weight="bold" fill="#222">{escape(name)}</text>',
            f'<text x="{middle}" y="{y + 43}" font-size="10.5" fill="#333">{escape(does)}</text>',
        ]
    for (x, y), (to_x, to_y) in pairwise(corners):
        if y == to_y:
            path = f"M{x + BOX_W} {y + BOX_H // 2}H{to_x}"
        else:
            path = f"M{x + BOX_W // 2} {y + BOX_H}V{y + BOX_H + GAP // 2}H{to_x + BOX_W // 2}V{to_y}"
        lines.append(f'<path d="{path}" fill="none" stroke="#444" stroke-width="1.4" marker-end="url(#a)"/>')
    return "\n".join([*lines, "</svg>", ""])


def shown(value: Any) -> str:
    """Return a number, a list of numbers or an ordering as a cell."""
    if isinstance(value, list):
        return " · ".join(shown(each) for each in value)
    if isinstance(value, bool):
        return "holds" if value else "does not hold"
    return f"{value:.4g}" if isinstance(value, int | float) else "–"


def table(system: str) -> str:
    """Return the scored mechanism rows of ``system`` as a Markdown table; what has 24 values is named, not shown."""
    column = next(each for each in json.loads(SCORECARD.read_text())["columns"] if each["name"] == "mechanism")
    compared = ("within tolerance", "outside", "undecided")
    rows = [row for row in column["rows"] if row["verdict"] in compared and row["system"] == system]
    predicted = [row for row in rows if row["kind"] == "predicted"]
    within = sum(row["verdict"] == "within tolerance" for row in predicted)
    lines = [
        f"{within} of {len(predicted)} predictions of the mechanism are within tolerance. Rows on an input that nobody "
        "printed, fits and algebra are counted apart.",
        "",
        "| id | what | kind | paper | ours | verdict |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        many = isinstance(row["ours"], list) and len(row["ours"]) > 8
        values = ("24 points", "in the scorecard") if many else (shown(row["paper"]), shown(row["ours"]))
        what = re.sub(r" \(the Katz artifact's.*| for the settings and systems.*|, LRU.*", "", row["what"])
        lines.append(f"| {row['id']} | {what} | {row['kind']} | {values[0]} | {values[1]} | {row['verdict']} |")
    return "\n".join(lines)


def filled(page: str) -> str:
    """Return ``page`` with its tables as the scorecard has them now."""
    summary = re.search(r"^\| paper .*?(?=\n\n)", SCORECARD.with_suffix(".md").read_text(), re.DOTALL | re.MULTILINE)
    assert summary is not None
    page = re.sub(
        r"(<!-- scorecard counts -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{summary[0]}\n\n{found[2]}",
        page,
        flags=re.DOTALL,
    )
    return re.sub(
        r"(<!-- scorecard (?!counts)(\w+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{table(found[2])}\n\n{found[3]}",
        page,
        flags=re.DOTALL,
    )


def main() -> None:
    for name, boxes in BOXES.items():
        (HERE / f"{name}.svg").write_text(picture(boxes), encoding="utf-8")
    for page in [*sorted(HERE.glob("*.md")), HERE.parent / "trust" / "papers.md", HERE.parents[1] / "README.md"]:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
