#!/usr/bin/env -S python3 -B
"""Runs every query of the dashboards, variables too, over a real Prometheus, and draws each panel from its answers.

The Prometheus holds a simulated fleet (fleet.py) and scrapes `crisweep demo`, a real crisweep, during a pass. Each query
must have data in both; names and labels of the simulated fleet must be the real ones.
  dashboards/check.py           checks, also that the pictures in docs/images have the panels of today
  dashboards/check.py --draw    writes docs/images
Needs prometheus, promtool and the program (cargo build); CRISWEEP names another one.
"""

import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import draw
import fleet
import queries

HERE = pathlib.Path(__file__).resolve().parent
BOARDS = {"node": "crisweep.json", "fleet": "crisweep-fleet.json"}
# A pass over the demo takes 20 s alone, and minutes beside builds.
PATIENCE_SECONDS = 300
# What the demo cannot have, and why.
NOT_IN_DEMO = {
    "cri_image_fs_inodes": "the demo's disk is simulated and has no inodes",
    "crisweep_last_pass_image_fs_inodes_used": "likewise",
    "deriv(": "its lists do not grow",
}
NOT_CRISWEEP = {"ALERTS", "kube_node_info", "up"}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def running(command, log):
    """A process for as long as the block lasts. Its log is shown if the block fails."""
    with open(log, "wb") as to:
        process = subprocess.Popen(command, stdout=to, stderr=to)
    try:
        yield process
    except BaseException:
        sys.stderr.write(pathlib.Path(log).read_text(errors="replace")[-2000:])
        raise
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(what, condition):
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            found = condition()
            if found:
                return found
            problem = "no answer yet"
        except (OSError, queries.Failed) as error:
            problem = error
        if time.monotonic() > until:
            raise queries.Failed(f"waiting for {what}: {problem}")
        time.sleep(0.2)


def load_fleet(scratch):
    text = scratch / "fleet.openmetrics"
    with open(text, "wb") as to:
        subprocess.run([sys.executable, HERE / "fleet.py"], stdout=to, check=True)
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, scratch / "data"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    text.unlink()


def prometheus_command(scratch, port, demo_port):
    config = scratch / "prometheus.yaml"
    config.write_text(f"""
global: {{ scrape_interval: 1s }}
scrape_configs:
  - job_name: crisweep
    static_configs:
      - targets: ["127.0.0.1:{demo_port}"]
        labels: {{ cluster: demo }}
""")
    return ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={scratch / 'data'}",
            "--storage.tsdb.retention.time=100y", "--query.lookback-delta=30s", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]


def sweep_demo(prometheus, demo_port):
    """Lets the demo run a pass, and returns the time that shows it."""
    demo = f"http://127.0.0.1:{demo_port}"
    wait_for("the demo", lambda: urllib.request.urlopen(f"{demo}/-/ready", timeout=5).status == 200)
    up = 'count_over_time(crisweep_node_info{cluster="demo"}[1m]) > 2'
    wait_for("scrapes before the pass", lambda: prometheus.ask("query", query=up)["result"])
    begin = time.time() - 3
    request = urllib.request.Request(f"{demo}/gc?wait={PATIENCE_SECONDS}s", method="POST")
    with urllib.request.urlopen(request, timeout=2 * PATIENCE_SECONDS) as answer:
        report = json.load(answer)
    if report["state"] != "done":
        raise queries.Failed(f"the demo's pass: {report}")
    seen = 'count_over_time(crisweep_last_pass_remaining{cluster="demo"}[1m]) > 2'
    wait_for("scrapes after the pass", lambda: prometheus.ask("query", query=seen)["result"])
    return queries.Moment(begin, time.time(), 1)


def names_are_real(prometheus, demo):
    """The simulated fleet has no name and no label that a real crisweep does not have."""
    problems = []

    def known(cluster, moment):
        found = prometheus.ask("series", **{"match[]": f'{{cluster="{cluster}"}}', "start": moment.start, "end": moment.end})
        return {(series["__name__"], tuple(sorted(set(series) - {"__name__"}))) for series in found}

    real = known("demo", demo)
    for name, labels in sorted(known("prod", FLEET)):
        if name not in NOT_CRISWEEP and name not in NOT_IN_DEMO and not name.startswith("cri_image_fs_inodes"):
            if (name, labels) not in real:
                problems.append(f"fleet.py: no {name} with the labels {labels} in the demo")
    return problems


def check(prometheus, board, moment, chosen, excused):
    """The answers for a dashboard's panels, and what is wrong with them."""
    answers, problems = {}, []
    values = queries.variables(prometheus, board, moment, chosen)
    for panel in queries.panels(board):
        for target in panel["targets"]:
            run = queries.instant if target.get("instant") else queries.over_time
            has_data = run(prometheus, target, values, moment)
            if not has_data and not any(name in target["expr"] for name in excused):
                problems.append(f"{board['title']} / {panel['title']}: no data in {chosen}: {target['expr']}")
        answers[panel["id"]] = queries.answer(prometheus, panel, values, moment)
    return answers, problems


FLEET = queries.Moment(fleet.START, fleet.END, fleet.STEP)
CHOSEN = {"node": {"cluster": "prod", "node": "worker-17"}, "fleet": {"cluster": "prod"}}
# The picture of the fleet shows the incident, the picture of the node what became of it.
SHOWN = {"node": FLEET, "fleet": queries.Moment(fleet.START, fleet.START + 258 * fleet.STEP, fleet.STEP)}


def look(prometheus, demo_port, draws):
    problems = []
    demo = sweep_demo(prometheus, demo_port)
    for name, file in BOARDS.items():
        board = json.loads((HERE / file).read_text())
        answers, wrong = check(prometheus, board, demo, {"cluster": "demo"}, NOT_IN_DEMO)
        draw.dashboard(board, answers, demo)
        problems += wrong
        answers, wrong = check(prometheus, board, SHOWN[name], CHOSEN[name], {})
        picture = draw.dashboard(board, answers, SHOWN[name])
        problems += wrong
        kept = HERE.parent / "docs" / "images" / f"dashboard-{name}.svg"
        if draws:
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(picture)
        elif titles(picture) != titles(kept.read_text()):
            problems.append(f"{kept} has other panels than {file}: make dashboards")
    return problems + names_are_real(prometheus, demo)


def titles(picture):
    return re.findall(r'class="[trh]"[^>]*>([^<]*)<', picture)


def main():
    program = os.environ.get("CRISWEEP", HERE.parent / "target" / "debug" / "crisweep")
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        load_fleet(scratch)
        port, demo_port = free_port(), free_port()
        demo = [program, "demo", "--web.listen-address", f"127.0.0.1:{demo_port}"]
        server = prometheus_command(scratch, port, demo_port)
        with running(demo, scratch / "demo.log"), running(server, scratch / "prometheus.log"):
            prometheus = queries.Prometheus(f"http://127.0.0.1:{port}")
            wait_for("Prometheus", lambda: prometheus.ask("query", query="1"))
            problems = look(prometheus, demo_port, sys.argv[1:] == ["--draw"])
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(1)
    print("dashboards/check.py: all well")


if __name__ == "__main__":
    main()
