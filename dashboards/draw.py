"""Draws what a dashboard's panels show as SVG: close to Grafana's panels, without Grafana."""

import math
import time
from html import escape

COLUMN, ROW, GAP = 50, 30, 6
COLORS = {"green": "#37872d", "orange": "#e07400", "red": "#c4162a", "blue": "#1f60c4", "transparent": "#24292f"}
PALETTE = ["#3274d9", "#e0752d", "#37872d", "#c4162a", "#8f3bb8", "#0f8b8d", "#b58900", "#6c757d", "#d6336c", "#5c4033",
           "#74b816", "#1098ad"]
STYLE = """text{font:12px -apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#24292f}
.t{font-weight:600}.r{font-size:14px;font-weight:600}.h{font-size:18px;font-weight:600}.s{font-size:10.5px;fill:#57606a}.e{text-anchor:end}.m{text-anchor:middle}
.p{fill:#fff;stroke:#d0d7de}.g{stroke:#eaeef2}.l{fill:none;stroke-width:1.5;stroke-linejoin:round}.x{stroke-dasharray:5 3;stroke-width:1.2}"""


def text(x, y, words, kind="", color=""):
    kind = f' class="{kind}"' if kind else ""
    color = f' style="fill:{color}"' if color else ""
    return f'<text x="{x:g}" y="{y:g}"{kind}{color}>{escape(str(words))}</text>'


def width_of(words, size=10.5):
    return len(words) * size * 0.56


def clipped(words, room, size=10.5):
    most = int(room / (size * 0.56))
    return words if len(words) <= most else words[: max(most - 1, 1)] + "…"


def number(value, decimals):
    if decimals is None:
        decimals = 0 if value == round(value) or abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    whole = f"{value:,.{decimals}f}"
    return whole.rstrip("0").rstrip(".") if "." in whole else whole


def formatted(value, unit, decimals=None):
    """A value as Grafana writes it in this unit."""
    if value is None or isinstance(value, str):
        return value or ""
    if math.isnan(value):
        return "–"
    if unit == "percentunit":
        return f"{number(value * 100, 1 if decimals is None and abs(value) < 0.1 else decimals)} %"
    if unit == "bytes":
        size, names = abs(value), ["B", "KiB", "MiB", "GiB", "TiB"]
        power = min(int(math.log(size, 1024)) if size >= 1 else 0, 4)
        return f"{number(value / 1024**power, decimals)} {names[power]}"
    if unit == "s":
        for least, name in [(86400, "d"), (3600, "h"), (60, "min"), (1, "s")]:
            if abs(value) >= least:
                return f"{number(value / least, 1 if value % least else 0)} {name}"
        return "0 s" if value == 0 else f"{number(value * 1000, None)} ms"
    if unit == "dateTimeAsIso":
        return time.strftime("%Y-%m-%d %H:%M", time.gmtime(value / 1000))
    return number(value, decimals)


def color_of(value, thresholds, mappings=()):
    for mapping in mappings:
        if str(int(value)) in mapping["options"]:
            return COLORS[mapping["options"][str(int(value))]["color"]]
    passed = [step["color"] for step in thresholds["steps"] if step["value"] is None or value >= step["value"]]
    return COLORS[passed[-1]]


def wording(value, defaults):
    for mapping in defaults["mappings"]:
        if str(int(value)) in mapping["options"]:
            return mapping["options"][str(int(value))]["text"]
    return formatted(value, defaults["unit"], defaults.get("decimals"))


def dashboard(board, answers, moment):
    """The whole dashboard; `answers` has one for each panel, by its id."""
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]) * ROW + 44
    parts = [text(GAP, 28, board["title"], "h"), text(24 * COLUMN - GAP, 26, span(moment), "s e")]
    for panel in board["panels"]:
        at = panel["gridPos"]
        x, y = at["x"] * COLUMN, at["y"] * ROW + 40
        if panel["type"] == "row":
            parts.append(text(x + GAP, y + 21, panel["title"], "r"))
            continue
        w, h = at["w"] * COLUMN - GAP, at["h"] * ROW - GAP
        parts.append(f'<svg x="{x + GAP / 2:g}" y="{y + GAP / 2:g}" width="{w}" height="{h}">')
        parts.append(picture(panel, answers[panel["id"]], moment, w, h))
        parts.append("</svg>")
    return page(24 * COLUMN, height, parts)


def page(w, h, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}">'
    return "\n".join([head, f"<style>{STYLE}</style>", f'<rect width="{w}" height="{h}" fill="#f4f5f7"/>', *parts, "</svg>\n"])


def span(moment):
    begin, end = time.gmtime(moment.start), time.gmtime(moment.end)
    return f"{time.strftime('%Y-%m-%d %H:%M', begin)} to {time.strftime('%H:%M', end)} UTC"


def picture(panel, data, moment, w, h):
    kinds = {"stat": stat, "timeseries": lines, "bargauge": bars, "state-timeline": states, "table": cells}
    frame = f'<rect class="p" x=".5" y=".5" width="{w - 1}" height="{h - 1}" rx="3"/>'
    title = text(9, 18, clipped(panel["title"], w - 12, 12), "t")
    empty = not data or panel["type"] == "table" and not data[1]
    body = text(w / 2, h / 2 + 8, "no data", "s m") if empty else kinds[panel["type"]](panel, data, moment, w, h)
    return frame + title + body


def stat(panel, data, _moment, w, h):
    defaults = panel["fieldConfig"]["defaults"]
    by_name = panel["options"]["textMode"] == "name"
    out = []
    for index, (name, value) in enumerate(data[:2]):
        words = name if by_name else wording(value, defaults)
        color = color_of(value, defaults["thresholds"], defaults["mappings"])
        size = min(30, (w - 16) / max(len(words), 1) / 0.56)
        y = h / 2 + size / 2 + 6 + (index - (len(data[:2]) - 1) / 2) * (size + 4)
        out.append(f'<text x="{w / 2:g}" y="{y:.0f}" class="m" style="font-size:{size:.0f}px;font-weight:600;fill:{color}">'
                   f"{escape(words)}</text>")
    return "".join(out)


def bars(panel, data, _moment, w, h):
    defaults = panel["fieldConfig"]["defaults"]
    top = defaults.get("max") or max(value for _, value in data) or 1
    pitch = (h - 34) / max(len(data), 10)
    left, right = 96, 62
    out = []
    for index, (name, value) in enumerate(sorted(data, key=lambda it: -it[1])):
        y = 28 + index * pitch
        color = color_of(value, defaults["thresholds"])
        out.append(text(left - 6, y + pitch / 2 + 4, clipped(name, left - 8), "s e"))
        out.append(f'<rect x="{left}" y="{y + 2:.1f}" width="{w - left - right}" height="{pitch - 5:.1f}" fill="#eaeef2"/>')
        length = (w - left - right) * min(value / top, 1)
        out.append(f'<rect x="{left}" y="{y + 2:.1f}" width="{length:.1f}" height="{pitch - 5:.1f}" fill="{color}"/>')
        words = formatted(value, defaults["unit"], defaults.get("decimals"))
        out.append(text(w - right + 6, y + pitch / 2 + 4, words, "s", color))
    return "".join(out)


def cells(panel, data, _moment, w, h):
    columns, rows = data
    overrides = {it["matcher"]["options"]: {p["id"]: p["value"] for p in it["properties"]}
                 for it in panel["fieldConfig"]["overrides"]}
    weights = [max(len(name), 10) for name in columns]
    edges = [8 + (w - 16) * sum(weights[:index]) / sum(weights) for index in range(len(columns))]
    out = [text(edge, 40, clipped(name, (w - 16) / sum(weights) * weight), "s t")
           for edge, name, weight in zip(edges, columns, weights)]
    for index, row in enumerate(rows[: int((h - 50) / 20)]):
        y = 60 + index * 20
        out.append(f'<path class="g" d="M8 {y - 14}H{w - 8}"/>')
        for edge, name, value, weight in zip(edges, columns, row, weights):
            how = overrides.get(name, {})
            words = formatted(value, how.get("unit", "none"))
            color = color_of(value, how["thresholds"]) if "thresholds" in how and value is not None else ""
            out.append(text(edge, y, clipped(words, (w - 16) / sum(weights) * weight, 11.5), "", color))
    return "".join(out)


def ticks(low, high, unit):
    """Some round numbers between two values."""
    size = (high - low) / 4 or 1
    if unit == "s":
        bases = [1e-3 * b for b in (1, 2, 5, 10, 20, 50, 100, 200, 500)]
        bases += [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000]
    elif unit == "bytes":
        bases = [b * 1024**power for power in range(5) for b in (1, 2, 5, 10, 20, 50, 100, 200, 500)]
    else:
        bases = [b * 10.0**power for power in range(-4, 8) for b in (1, 2, 5)]
    step = next((base for base in bases if base >= size), size)
    count = int(math.ceil((high - low) / step - 1e-9))
    return [low + step * index for index in range(count + 1)]


def named(series, width, most):
    """Lines of (x, name, color) for the legend, the largest series first, and how many did not fit."""
    out, x, line, shown = [[]], 0, 0, 0
    for name, color in series:
        need = width_of(name) + 22
        if x + need > width and x:
            x, line = 0, line + 1
            if line == most:
                break
            out.append([])
        out[line].append((x, name, color))
        x, shown = x + need, shown + 1
    return out, len(series) - shown


def plot(w, h, legend_lines):
    return 62, 30, w - 14, h - 26 - 15 * legend_lines


def hours(moment, left, right, top, bottom):
    out, span_seconds = [], moment.end - moment.start
    pace = next(p for p in (1, 5, 10, 15, 30, 60, 300, 900, 1800, 3600, 7200, 21600, 86400, 1e9) if span_seconds / p <= 6.5)
    at = math.ceil(moment.start / pace) * pace
    while at <= moment.end:
        x = left + (right - left) * (at - moment.start) / span_seconds
        form = "%H:%M" if pace >= 60 else "%M:%S"
        out.append(f'<path class="g" d="M{x:.0f} {top}V{bottom}"/>')
        if x < right - 12:
            out.append(text(round(x), bottom + 13, time.strftime(form, time.gmtime(at)), "s m"))
        at += pace
    return "".join(out)


def lines(panel, data, moment, w, h):
    defaults = panel["fieldConfig"]["defaults"]
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    colored = [(name, values, PALETTE[index % len(PALETTE)]) for index, (name, values) in enumerate(data)]
    peak = lambda it: max((v for v in it[1].values() if not math.isnan(v)), default=0)
    shown = sorted(colored, key=peak, reverse=True)
    legend, more = named([(name, color) for name, _, color in shown], w - 30, 2)
    left, top, right, bottom = plot(w, h, len(legend))
    layers, base = [], {}
    for name, values, color in colored:
        under = dict(base)
        if stacked:
            for at, value in values.items():
                base[at] = base.get(at, 0) + (0 if math.isnan(value) else value)
            values = {at: base[at] for at in values}
        layers.append((values, under, color))
    high = max((v for values, _, _ in layers for v in values.values() if not math.isnan(v)), default=1)
    limits = [step for step in defaults["thresholds"]["steps"] if step["value"] is not None]
    if defaults["custom"]["thresholdsStyle"]["mode"] != "line":
        limits = []
    high = max([high, defaults.get("max", 0)] + [step["value"] for step in limits if step["value"] < 4 * high])
    marks = ticks(0, high or 1, defaults["unit"])
    high = marks[-1]
    to_y = lambda value: bottom - (bottom - top) * value / high
    to_x = lambda at: left + (right - left) * (at - moment.start) / (moment.end - moment.start)
    out = [hours(moment, left, right, top, bottom)]
    for mark in marks:
        out.append(f'<path class="g" d="M{left} {to_y(mark):.0f}H{right}"/>')
        out.append(text(left - 5, to_y(mark) + 4, formatted(mark, defaults["unit"]), "s e"))
    style = defaults["custom"]["drawStyle"]
    wide = max((right - left) * moment.step / (moment.end - moment.start) - 0.5, 1)
    for values, under, color in layers:
        if style == "points":
            out += [f'<circle cx="{to_x(at):.0f}" cy="{to_y(value):.1f}" r="2" fill="{color}"/>'
                    for at, value in values.items() if not math.isnan(value)]
            continue
        if style == "bars":
            tall = [(at, under.get(at, 0), value) for at, value in values.items() if value > under.get(at, 0)]
            out += [f'<rect x="{to_x(at) - wide / 2:.1f}" y="{to_y(value):.1f}" width="{wide:.1f}" '
                    f'height="{to_y(low) - to_y(value):.1f}" fill="{color}"/>' for at, low, value in tall]
            continue
        for run in runs(values, moment.step):
            path = stroke([(to_x(at), to_y(values[at])) for at in run])
            if stacked:
                back = stroke([(to_x(at), to_y(under.get(at, 0))) for at in reversed(run)])
                out.append(f'<path d="{path}L{back[1:]}Z" fill="{color}" fill-opacity=".35"/>')
            out.append(f'<path class="l" stroke="{color}" d="{path}"/>')
    for step in limits:
        if step["value"] <= high:
            y = to_y(step["value"])
            out.append(f'<path class="x" stroke="{COLORS[step["color"]]}" d="M{left} {y:.0f}H{right}"/>')
    return "".join(out) + below(legend, more, left, bottom, w)


def below(legend, more, left, bottom, w):
    out = []
    for index, line in enumerate(legend):
        y = bottom + 30 + 15 * index
        for x, name, color in line:
            out.append(f'<rect x="{x + 14:.0f}" y="{y - 5}" width="10" height="3" fill="{color}"/>')
            out.append(text(round(x + 28), y, name, "s"))
        if more and index == len(legend) - 1:
            out.append(text(w - 8, y, f"+{more}", "s e"))
    return "".join(out)


def runs(values, step):
    """The times of a series in pieces without a gap."""
    pieces, last = [], None
    for at in values:
        if math.isnan(values[at]):
            last = None
            continue
        if last is None or at - last > 1.5 * step:
            pieces.append([])
        pieces[-1].append(at)
        last = at
    return [piece if len(piece) > 1 else piece * 2 for piece in pieces]


def stroke(points):
    """A path through points, without those on a straight line between their neighbours."""
    points = [(round(x), round(y * 2) / 2) for x, y in points]
    kept = points[:1]
    for index in range(1, len(points)):
        (x0, y0), (x1, y1) = kept[-1], points[index]
        x2, y2 = points[index + 1] if index + 1 < len(points) else (None, None)
        if x2 is None or (x1 - x0) * (y2 - y1) != (x2 - x1) * (y1 - y0):
            kept.append((x1, y1))
    out, (px, py) = f"M{kept[0][0]:g} {kept[0][1]:g}", kept[0]
    for x, y in kept[1:]:
        out += f"h{x - px:g}" if y == py else f"l{x - px:g} {y - py:g}"
        px, py = x, y
    return out


def states(panel, data, moment, w, h):
    defaults = panel["fieldConfig"]["defaults"]
    texts = [(each["text"], COLORS[each["color"]]) for mapping in defaults["mappings"] for each in mapping["options"].values()]
    legend, more = named(texts, w - 30, 1)
    left, top, right, bottom = plot(w, h, 1)
    left = 18 + max(width_of(name) for name, _ in data)
    pitch = (bottom - top) / len(data)
    to_x = lambda at: left + (right - left) * (at - moment.start) / (moment.end - moment.start)
    out = [hours(moment, left, right, top, bottom)]
    for index, (name, values) in enumerate(data):
        y = top + index * pitch
        out.append(text(left - 6, y + pitch / 2 + 4, name, "s e"))
        for begin, end, value in stretches(values, moment):
            color = color_of(value, defaults["thresholds"], defaults["mappings"])
            out.append(f'<rect x="{to_x(begin):.1f}" y="{y + 1.5:.1f}" width="{to_x(end) - to_x(begin):.1f}" '
                       f'height="{pitch - 3:.1f}" fill="{color}" fill-opacity=".75"/>')
    return "".join(out) + below(legend, more, left, bottom, w)


def stretches(values, moment):
    """(begin, end, value) of each time in which a value held."""
    out = []
    for at, value in values.items():
        end = min(at + moment.step, moment.end)
        if out and out[-1][2] == value and at - out[-1][1] < moment.step / 2:
            out[-1] = (out[-1][0], end, value)
        elif at < moment.end:
            out.append((at, end, value))
    return out
