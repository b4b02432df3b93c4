"""Save figures: the one place that decides format, size, fonts and metadata.

The bytes depend on the figure alone: no date, no version of a program, ids in the order of their use. A figure of a
page is an SVG without what a reader does not see, so that it is small enough to be kept under version control.
"""

import io
import re
import warnings
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.figure import Figure

from mezzotint.figures.palette import DPI, house_style

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"

FONTS = "'DejaVu Sans',Verdana,sans-serif"
"""Of text that the viewer draws. Verdana is as wide as DejaVu Sans."""

_COORDINATES = ("d", "height", "transform", "width", "x", "y")
_DECIMAL = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"(?<=#)[\w-]+")


def save_png(figure: Figure, file: Path | IO[bytes]) -> None:
    """Write a PNG of DPI pixels per inch, whatever the suffix of ``file``."""
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})


def svg(figure: Figure) -> bytes:
    """Return an SVG whose text is outlines, so that it looks the same with any fonts.

    Letters that the font lacks are drawn as boxes.
    """
    return _canonical(_matplotlib_svg(figure, "path"))


def page_svg(figure: Figure) -> bytes:
    """Return a small SVG for a page: its text is text, its coordinates have two decimals."""
    return _compact(_matplotlib_svg(figure, "none"))


def _matplotlib_svg(figure: Figure, text: str) -> bytes:
    buffer = io.BytesIO()
    with house_style(), mpl.rc_context({"svg.hashsalt": "mezzotint", "svg.fonttype": text}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _canonical(image: bytes) -> bytes:
    """Number the clip paths: matplotlib names them by coordinates whose last digit varies with the layout's solver."""
    names: dict[bytes, bytes] = {}
    named = rb'(?<=[#"])p[0-9a-f]{10}(?=[")])'
    return re.sub(named, lambda found: names.setdefault(found[0], b"p%d" % len(names)), image)


def _compact(image: bytes) -> bytes:
    """Drop comments, spaces, groups and ids without use; round coordinates; name each style once, as a class."""
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    root = ElementTree.fromstring(image)
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    named = {element.get("id") for element in root.iter()}
    values = [value for element in root.iter() for value in element.attrib.values()]
    references = dict.fromkeys(name for value in values for name in _REFERENCE.findall(value) if name in named)
    ids = {name: f"i{place}" for place, name in enumerate(references)}
    classes: dict[str, str] = {}
    for element in root.iter():
        _shorten(element, ids, classes)
    _flatten(root)
    style = root.find(f"{{{SVG}}}defs/{{{SVG}}}style")
    assert style is not None, "matplotlib writes one in every figure"
    text = f"*{{stroke-linejoin:round;stroke-linecap:butt}}text{{font-family:{FONTS};white-space:pre}}"
    style.text = text + "".join(f".{name}{{{rule}}}" for rule, name in classes.items())
    small: bytes = ElementTree.tostring(root, encoding="utf-8")
    return small


def _shorten(element: ElementTree.Element, ids: dict[str, str], classes: dict[str, str]) -> None:
    """Shorten the attributes of one element. A style that has no class yet is added to ``classes``."""
    attributes = element.attrib
    for key, value in attributes.items():
        attributes[key] = _REFERENCE.sub(lambda found: ids.get(found[0], found[0]), value)
    if "id" in attributes:
        name = ids.get(attributes.pop("id"))
        attributes |= {"id": name} if name else {}
    style = attributes.pop("style", "").replace("font-family: 'DejaVu Sans'", "").replace(" ", "").strip(";")
    if style:
        rule = style.replace(";;", ";")
        attributes["class"] = classes.setdefault(rule, f"c{len(classes)}")
    if attributes.get("transform", "").startswith("rotate(-0 "):
        del attributes["transform"]
    for key in attributes.keys() & set(_COORDINATES):
        attributes[key] = _DECIMAL.sub(lambda found: f"{round(float(found[0]), 2):g}", attributes[key])
    if "d" in attributes:
        attributes["d"] = re.sub(r"\s*([A-Za-z])\s*", r"\1", attributes["d"])
    if element.tag != f"{{{SVG}}}text":
        element.text = None
    element.tail = "\n"


def _flatten(element: ElementTree.Element) -> None:
    """Replace each group that has no attributes by what is in it."""
    for child in list(element):
        _flatten(child)
        if child.tag == f"{{{SVG}}}g" and not child.attrib:
            place = list(element).index(child)
            element[place : place + 1] = list(child)
