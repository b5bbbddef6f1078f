"""The report as one HTML file that needs no network: data, style, code and the chart library are inside it."""
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
CHART_PACKAGE = "libjs-chart.js"
CHART_FILE = "/usr/share/javascript/chart.js/chart.min.js"


class PageError(Exception):
    """Something that the page is made of cannot be read; names the file and what brings it."""


def asset(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def chart_library(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise PageError(f"{path}: {error.strerror} (Debian's package '{CHART_PACKAGE}' brings this file)") from error


def script_text(code):
    """Code that may stand in a <script> element: nothing in it ends the element or begins a comment."""
    lines = (line for line in code.splitlines() if not line.startswith("//# sourceMappingURL"))
    return "\n".join(lines).replace("</script", "<\\/script").replace("<!--", "<\\!--")


def json_text(data):
    """JSON that may stand in a <script> element. Refuses NaN and infinity, which are no JSON."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def finite(value):
    """A copy of the data with null for what is no finite number."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, float) and value - value != 0:
        return None
    return value


def timeline(trace):
    """Rows for the chart from a trace in Chrome's format: [{rank, row, bars: [{name, begin_ms, end_ms, args}]}]."""
    names, rows = {}, {}
    for event in trace.get("traceEvents", []):
        key = (event["pid"], event["tid"])
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[key] = event["args"]["name"]
        elif event["ph"] == "X":
            begin = event["ts"] / 1000
            rows.setdefault(key, []).append({
                "name": event["name"], "begin_ms": begin, "end_ms": begin + event["dur"] / 1000,
                "args": event.get("args", {})})
    return [{"rank": rank, "row": names.get((rank, row), str(row)), "bars": rows[rank, row]}
            for rank, row in sorted(rows)]


def page(data, chart_js):
    html = asset("page.html")
    parts = {
        "/*STYLE*/": asset("page.css"),
        "/*CHART*/": script_text(chart_js),
        "/*DATA*/": json_text(finite(data)),
        "/*CODE*/": script_text(asset("page.js")),
    }
    pieces = [html]
    for marker, text in parts.items():
        before, found, after = pieces.pop().partition(marker)
        if not found:
            raise PageError(f"page.html: no {marker}")
        pieces += [before, text, after]
    return "".join(pieces)
