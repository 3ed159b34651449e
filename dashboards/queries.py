"""Runs what a dashboard asks over a real Prometheus, as Grafana does: its variables first, then each panel."""

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request


class Failed(Exception):
    """A query that Prometheus refuses, or a dashboard that says something that is not understood here."""


class Prometheus:
    def __init__(self, url):
        self.url = url

    def ask(self, path, **parameters):
        body = urllib.parse.urlencode(parameters, doseq=True)
        # Label values are answered to GET alone.
        where = f"{self.url}/api/v1/{path}"
        request = f"{where}?{body}" if path.startswith("label/") else urllib.request.Request(where, body.encode())
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise Failed(f"{parameters}: {error.read().decode()}") from error


class Moment:
    """The time range that a dashboard shows."""

    def __init__(self, start, end, scrape, points=180):
        self.start, self.end = start, end
        # A multiple, so that each step falls on a scrape.
        self.step = max(math.ceil((end - start) / points / scrape), 1) * scrape
        self.rate = max(self.step + scrape, 4 * scrape)  # Grafana's $__rate_interval

    def fill(self, query):
        query = query.replace("$__rate_interval", f"{round(self.rate)}s")
        return query.replace("$__range", f"{round(self.end - self.start)}s")


def variables(prometheus, dashboard, moment, chosen):
    """The value of each variable, as Grafana puts it into a query. `chosen` has what a person chose."""
    values = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "datasource":
            continue
        name = variable["name"]
        query = substitute(variable["query"]["query"], values)
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        if not found:
            raise Failed(f"variable {name}: {query}")
        options = prometheus.ask(f"label/{found[2]}/values", **{"match[]": found[1], "start": moment.start, "end": moment.end})
        if not options:
            raise Failed(f"variable {name} has no values: {query}")
        if name in chosen:
            if chosen[name] not in options:
                raise Failed(f"variable {name} has no value {chosen[name]}: {options}")
            values[name] = chosen[name]
        elif not variable["includeAll"]:
            values[name] = options[0]
        else:
            everything = "(" + "|".join(option.replace(".", "\\\\.") for option in options) + ")"
            values[name] = variable.get("allValue") or everything
    return values


def substitute(query, values):
    for name, value in values.items():
        query = re.sub(rf"\${name}\b", lambda _, value=value: value, query)
    left = re.search(r"\$(?!__)[a-z]\w*", query)
    if left:
        raise Failed(f"no variable {left[0]}: {query}")
    return query


def panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def instant(prometheus, target, values, moment):
    """(labels, value) of each series of a target now."""
    query = moment.fill(substitute(target["expr"], values))
    result = prometheus.ask("query", query=query, time=moment.end)
    return [(series["metric"], float(series["value"][1])) for series in result["result"]]


def over_time(prometheus, target, values, moment):
    """(labels, {time: value}) of each series of a target over the range."""
    query = moment.fill(substitute(target["expr"], values))
    result = prometheus.ask("query_range", query=query, start=moment.start, end=moment.end, step=moment.step)
    return [(series["metric"], {time: float(value) for time, value in series["values"]}) for series in result["result"]]


def legend(target, labels, panel):
    form = target.get("legendFormat") or ""
    if not form:
        return panel["title"]
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), form).strip()


def answer(prometheus, panel, values, moment):
    """What a panel shows: [(legend, value)], [(legend, {time: value})], or for a table (columns, rows)."""
    if panel["type"] == "table":
        return table(prometheus, panel, values, moment)
    run = instant if panel["targets"][0].get("instant") else over_time
    shown = []
    for target in panel["targets"]:
        found = run(prometheus, target, values, moment)
        # Prometheus does not always answer in the same order.
        shown += sorted(((legend(target, labels, panel), value) for labels, value in found), key=lambda it: it[0])
    return shown


def table(prometheus, panel, values, moment):
    """Grafana's transformations `merge` and `organize`."""
    rows = {}
    for target in panel["targets"]:
        column = f"Value #{target['refId']}" if len(panel["targets"]) > 1 else "Value"
        for labels, value in instant(prometheus, target, values, moment):
            labels = {name: text for name, text in labels.items() if name != "__name__"}
            rows.setdefault(tuple(sorted(labels.items())), dict(labels))[column] = value
    organize = panel["transformations"][1]["options"]
    order = sorted(organize["indexByName"], key=organize["indexByName"].get)
    shown = [name for name in order if any(name in row for row in rows.values())]
    columns = [organize["renameByName"].get(name, name) for name in shown]
    lines = [[row.get(name) for name in shown] for _, row in sorted(rows.items())]
    for sort in panel["options"].get("sortBy", []):
        by = columns.index(sort["displayName"])
        lines.sort(key=lambda line: -1e300 if line[by] is None else line[by], reverse=sort["desc"])
    return columns, lines
