"""Read access logs: nginx's log_format, Apache's LogFormat; JSON of nginx, Caddy, Traefik and Google Cloud."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mezzotint.traces.error import TraceError
from mezzotint.traces.formats.delimited import HEAD_BYTES
from mezzotint.traces.formats.jsontext import is_json, records
from mezzotint.traces.formats.lines import lines
from mezzotint.traces.table.limits import Limits, open_unpacked
from mezzotint.traces.table.validation import excerpt

COMBINED = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"'
)

FORMATS = {
    "nginx": f"{COMBINED} $request_time",
    "combined": '%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i"',
    "common": '%h %l %u %t "%r" %>s %b',
}
"""Names of formats; the first is taken if none is given."""

PART = re.compile(r"\$(\w+|\{\w+\})|%[<>!\d,]*(?:\{([^}]*)\})?(\^?[A-Za-z]+?)(?=[^A-Za-z]|$|%)|%%")
"""A variable of nginx, or a directive of Apache."""

APACHE = {
    "h": "remote_addr", "a": "remote_addr", "u": "remote_user", "r": "request", "s": "status", "m": "method",
    "U": "url", "D": "duration_us", "T": "duration_s", "t": "time_received",
}  # fmt: skip
"""Directives of Apache that are read -> names of their fields. %t is when the request was received, %D microseconds."""

RENAMED: Mapping[str, str] = {"request_uri": "url", "uri": "url", "request_method": "method"}
"""Variables of nginx -> names of their fields, where they differ."""

CADDY: Mapping[str, str] = {"ts": "time_end", "duration": "duration_s", "user_id": "remote_user", "uri": "url"}
"""Fields of Caddy, which writes a line when the answer was sent -> their names here."""

TRAEFIK: Mapping[str, str] = {
    "StartUTC": "time_received", "Duration": "duration_ns", "RequestMethod": "method", "RequestPath": "url",
    "DownstreamStatus": "status", "ClientUsername": "remote_user",
}  # fmt: skip
"""Fields of Traefik -> their names here."""

GOOGLE_CLOUD: Mapping[str, str] = {
    "timestamp": "time_received", "latency": "duration_s", "requestMethod": "method", "requestUrl": "url",
}  # fmt: skip
"""Fields of an entry of Google Cloud's request logs, and of its httpRequest -> their names here."""

ABSENT = ("-", "")


def access_log(path: Path, limits: Limits, options: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the fields of each line. Raises TraceError for a line of another format, or one without fields to read."""
    with open_unpacked(path, limits) as stream:
        head = stream.read(HEAD_BYTES)
    if options.format is None and is_json(head):
        for row, record in records(path, limits):
            renamed, inner = _server(record) or (RENAMED, None)
            if inner is not None:
                record |= record.pop(inner)
            named = {renamed.get(name, name): value for name, value in record.items() if value not in ABSENT}
            yield row, _split(named)
        return
    declared = FORMATS.get(options.format or "nginx", options.format)
    pattern, names = _compiled(declared, path)
    for rows, texts in lines(path, limits, limits.max_prompt_bytes, "request"):
        for row, text in zip(rows, texts, strict=True):
            if not text.strip():
                continue
            match = pattern.fullmatch(text.rstrip())
            if match is None:
                raise TraceError(
                    f"{path}: row {row}: found {excerpt(repr(text), 100)}, expected a line of the format {declared};"
                    " give the server's own with --format, as in its configuration"
                )
            record = {name: value for name, value in zip(names, match.groups(), strict=True) if value not in ABSENT}
            yield row, _split(record)


def is_access(record: Mapping[str, Any]) -> bool:
    """Return True for a record of Caddy's or Traefik's access log, or of Google Cloud's request logs."""
    return _server(record) is not None


def _server(record: Mapping[str, Any]) -> tuple[Mapping[str, str], str | None] | None:
    """Return the field names of the server that wrote ``record``, and the field with the request; None if unknown."""
    if isinstance(record.get("request"), dict) and str(record.get("logger")).startswith("http.log.access"):
        return CADDY, "request"
    if {"StartUTC", "RequestMethod"} <= record.keys():
        return TRAEFIK, None
    # Other logs of Google Cloud are those of an application, whose payload says more of a request.
    if isinstance(record.get("httpRequest"), dict) and str(record.get("logName")).endswith("requests"):
        return GOOGLE_CLOUD, "httpRequest"
    return None


def _split(record: dict[str, Any]) -> dict[str, Any]:
    """Split the first line of a request into method and path; one that is no HTTP has the method `invalid`."""
    line = record.get("request")
    if isinstance(line, str):
        del record["request"]
        words = line.split(" ")
        record["method"], record["url"] = words[:2] if len(words) in (2, 3) else ("invalid", None)
    if "time_received" in record:
        record["time_received"] = record["time_received"].strip("[]")
    return record


def _compiled(declared: str, path: Path) -> tuple[re.Pattern[str], list[str]]:
    """Return the regular expression of a format, and the names of its groups."""
    text = declared.strip().replace('\\"', '"')
    pieces, names, end = [], [], 0
    parts = [part for part in PART.finditer(text) if part[0] != "%%"]
    for part, following in zip(parts, [*parts, None][1:], strict=True):
        pieces.append(re.escape(text[end : part.start()]))
        end = part.end()
        between = text[end : following.start()] if following else text[end:]
        names.append(_name(part))
        pieces.append(_value(names[-1], between[:1], text[part.start() - 1 : part.start()]))
    if not {"time_local", "time_iso8601", "msec", "time_received", "time_end"} & set(names):
        raise TraceError(
            f"{path}: --format {excerpt(declared)}: names no time, expected $time_local, $time_iso8601, $msec or %t"
            " among its fields; write it as in the server's configuration"
        )
    return re.compile("".join(pieces) + re.escape(text[end:])), names


def _value(name: str, after: str, before: str) -> str:
    """Return the group of a field, which ends before the character that follows it."""
    if name == "time_received":
        return r"(\[[^\]]*\]|[^ ]*)"
    if before == '"' and after == '"':
        return r'((?:[^"\\]|\\.)*)'
    return "(.*)" if after == "" else f"([^{re.escape(after)}]*)"


def _name(part: re.Match[str]) -> str:
    variable, argument, directive = part.groups()
    if variable:
        variable = variable.strip("{}")
        return RENAMED.get(variable, variable)
    if directive == "T" and argument:
        return f"duration_{argument}"
    if directive == "t" and argument:
        kind, _, form = argument.rpartition(":")
        name = "time_end" if kind == "end" else "time_received"
        return name if form in ("sec", "msec", "usec") else f"{name}_{len(form)}"  # parts of a date are not read
    if directive in APACHE and (not argument or directive in "tT"):
        return APACHE[directive]
    return f"{argument or directive}".replace("-", "_").lower() + "_" + directive.lower()
