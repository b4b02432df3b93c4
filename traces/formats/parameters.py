"""Read the "parameters" text that A1111's web UI and its relatives write beside or into an image."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import ExifTags, Image

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.lines import lines
from mezzotint.traces.table.limits import Limits, regular_file
from mezzotint.traces.table.validation import excerpt

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")

SETTINGS = re.compile(r"\s*Steps:\s*\d+\s*(,|$)")
"""Start of the line of settings, which is the last of a text."""

# lengths are bounded, or a long line without a colon would take the square of its length
SETTING = re.compile(r'([A-Za-z][\w \-/()]{0,60}):\s*("(?:[^"\\]|\\.)*"|[^,]*)(?:,|$)')
LATER = re.compile(r"\s*(Template|Negative Template|Wildcard \w+|Version):")
"""Lines that extensions write after the settings."""

LORA = re.compile(r"<(?:lora|lyco):([^:>]{1,200})(?::[^>]{0,60})?>")
NEGATIVE = "Negative prompt:"


def generated(path: Path, limits: Limits, _: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the prompt and settings of texts in a file one after another, of an image, or of the images of a folder.

    Raises TraceError if a text is not UTF-8 or too long, an image cannot be read, or no settings are there.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES)
        if not files:
            raise TraceError(f"{path}: found no image ({', '.join(SUFFIXES)}), expected a folder of images")
        for row, file in enumerate(files):
            yield row, _of_image(file, limits)
    elif path.suffix.lower() in SUFFIXES:
        yield 0, _of_image(path, limits)
    else:
        yield from _of_text(path, limits)


def _of_text(path: Path, limits: Limits) -> Iterator[tuple[int, dict[str, Any]]]:
    block: list[str] = []
    first, count = 0, 0
    for rows, texts in lines(path, limits, limits.max_prompt_bytes, "parameters"):
        for row, text in zip(rows, texts, strict=True):
            if not block:
                if not text.strip() or (count and LATER.match(text)):
                    continue
                first = row
            block.append(text)
            if SETTINGS.match(text):
                yield first, _parsed(block)
                block, count = [], count + 1
    if block:
        remedy = "`trace import prompts` reads a list of prompts" if not count else "add it, or drop the text"
        raise TraceError(
            f"{path}: row {first}: found {excerpt(repr(block[0]), 60)} without a line of settings (Steps: 20, Sampler:"
            f" ...) after it; {remedy}"
        )


def _of_image(path: Path, limits: Limits) -> dict[str, Any]:
    """Return what the text of an image says, {} if it has none. The pixels are not decoded."""
    regular_file(path)
    try:
        with Image.open(path) as image:
            text = image.info.get("parameters")
            if text is None:
                comment = image.getexif().get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.UserComment)
                text = _comment(comment) if isinstance(comment, bytes) else comment
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise TraceError(f"{path}: cannot be read as an image ({excerpt(str(error))}); fetch it again") from error
    if not isinstance(text, str) or len(text.encode()) > limits.max_prompt_bytes:
        return {}
    return {"request_id": path.name, **_parsed(text.splitlines())}


def _comment(data: bytes) -> str:
    """Return the text of an Exif comment, whose first eight bytes name its encoding."""
    kind, content = data[:8], data[8:]
    encoding = ("utf-16-le" if content[1:2] == b"\0" else "utf-16-be") if kind.startswith(b"UNICODE") else "utf-8"
    return content.decode(encoding, "replace")


def _parsed(text: list[str]) -> dict[str, Any]:
    """Return the fields of one text: prompt, negative prompt, then settings under their own names."""
    last = next((number for number, line in enumerate(text) if SETTINGS.match(line)), len(text))
    body = "\n".join(text[:last]).strip()
    prompt, is_there, negative = (
        body.partition(NEGATIVE) if body.startswith(NEGATIVE) else body.partition("\n" + NEGATIVE)
    )
    settings = {}
    for name, value in SETTING.findall(text[last] if last < len(text) else ""):
        value = value.strip()
        settings[name.strip()] = value[1:-1].replace('\\"', '"') if value[:1] == '"' else value
    record: dict[str, Any] = {"prompt": re.sub(r"^parameters\s*:?\s*", "", prompt.strip(), flags=re.IGNORECASE)}
    if is_there:
        record["negative_prompt"] = negative.strip()
    loras = LORA.findall(prompt)
    record["loras"] = loras if settings else None
    nets = [
        re.search(r"Model: ([^,\[]+)", f"Model: {value}" if name.endswith(" Model") else value)
        for name, value in settings.items()
        if name.startswith("ControlNet ")
    ]
    record["controlnets"] = [net[1].strip() for net in nets if net] or None
    return {**record, "settings": with_second_pass(settings)}


def with_second_pass(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings in which the denoising strength of a second pass, which is none of image to image, says so."""
    if not any(name.startswith(("Hires", "First pass")) for name in settings):
        return settings
    return {{"Denoising strength": "Second pass denoising"}.get(name, name): settings[name] for name in settings}
