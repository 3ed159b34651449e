#!/usr/bin/env python3
"""Records a terminal session on the demo's node as an animated SVG: record.py PROGRAM FILE.

Runs each command of SCENES against `crisweep demo`, in a network namespace of its own, and draws what the commands
print, line by line as it came; a command that takes longer than LONGEST is shown in that time. Nothing of the output
is written by hand. Needs unshare, ip and curl; as another user than root also user namespaces.
"""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from html import escape

# Each command with the exit code that it must have, and the seconds for reading what it printed.
SCENES = [
    ("crisweep check", 1, 1.6),
    ("crisweep explain shop/inventory-crash-nhtjh/inventory#3", 0, 4.5),
    ("curl -N -X POST 'localhost:20950/gc?follow=true'", 0, 1.2),
    ("crisweep passes", 0, 1.2),
    ("crisweep evidence --limit 3", 0, 2.5),
]
LONGEST = 5.0
TYPING = 0.025  # seconds for each character
COLUMNS, ROWS = 100, 26
CELL, LINE, FONT, EDGE, BAR = 7.2, 17, 12, 14, 26
READY = "http://127.0.0.1:20950/-/ready"


def isolate(arguments):
    """Starts this script again where no other program listens on loopback."""
    inside = f"ip link set lo up && exec {sys.executable} \"$@\""
    users = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", *users, "--net", "sh", "-c", inside, "sh", *arguments]
    os.execvpe(command[0], command, {**os.environ, "RECORDING": "inside"})


def wait_until_ready(demo):
    for _ in range(300):
        if demo.poll() is not None:
            sys.exit("the demo has ended")
        try:
            return urllib.request.urlopen(READY, timeout=1)
        except OSError:
            time.sleep(0.1)
    sys.exit("the demo is not ready after 30 s")


def run(command, wanted, environment):
    """Returns the lines that a command printed, each with the seconds since the command began."""
    began = time.monotonic()
    shell = subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, env=environment)
    lines = [(time.monotonic() - began, line.rstrip()) for line in shell.stdout if "% Total" not in line]
    if shell.wait(timeout=120) != wanted:
        sys.exit(f"{command}: exit code {shell.returncode}\n" + "\n".join(line for _, line in lines))
    return lines, time.monotonic() - began


def record(program):
    with tempfile.TemporaryDirectory() as place:
        os.symlink(os.path.abspath(program), os.path.join(place, "crisweep"))
        path = place + ":" + os.environ["PATH"]
        environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": str(COLUMNS)}
        with open(os.path.join(place, "log"), "wb") as log:
            demo = subprocess.Popen([program, "demo"], stdout=log, stderr=log)
        try:
            wait_until_ready(demo)
            time.sleep(3)  # the demo's pod list settles
            return [(command, *run(command.replace("curl ", "curl -s "), wanted, environment), rest)
                    for command, wanted, rest in SCENES]
        finally:
            demo.terminate()
            demo.wait(timeout=30)


def wrap(line):
    return [line[at:at + COLUMNS] for at in range(0, len(line), COLUMNS)] or [""]


def play(scenes):
    """Returns rows (seconds, kind, text), the seconds at which each command is typed, and the end."""
    rows, typed, now = [], [], 0.6
    for command, lines, took, rest in scenes:
        rows.append((now, "command", command))
        typed.append((len(rows) - 1, now, now + TYPING * len(command)))
        now += TYPING * len(command) + 0.3
        speed = min(1.0, LONGEST / took)
        for at, line in lines:
            rows += [(now + at * speed, "output", part) for part in wrap(line)]
        now += took * speed + rest
        rows.append((now, "output", ""))
    return rows[:-1], typed, now + 1.0


def keyframes(name, steps, end):
    """Values that hold until the next one; `steps` are (seconds, declarations)."""
    frames = "".join(f"{100 * at / end:.2f}%{{{value}}}" for at, value in steps)
    return f"@keyframes {name}{{{frames}}}"


def draw(rows, typed, end):
    width = COLUMNS * CELL + 2 * EDGE
    height = ROWS * LINE + 2 * EDGE + BAR
    style, body = [], []
    for index, (at, kind, text) in enumerate(rows):
        style.append(keyframes(f"r{index}", [(0, "opacity:0"), (at, "opacity:1"), (end, "opacity:1")], end))
        style.append(f"#r{index}{{animation-name:r{index}}}")
        base, left = BAR + EDGE + (index + 0.75) * LINE, EDGE
        shown = [f'<tspan class="p">$</tspan> {escape(text)}' if kind == "command" else escape(text)]
        length = (len(text) + (2 if kind == "command" else 0)) * CELL
        if length:
            body.append(f'<text id="r{index}" class="{kind[0]}" x="{left}" y="{base:.1f}" '
                        f'textLength="{length:.1f}">{"".join(shown)}</text>')
    for number, (index, begin, stop) in enumerate(typed):
        count = len(rows[index][2])
        size = count * CELL
        style.append(f"@keyframes t{number}{{0%,{100 * begin / end:.2f}%{{transform:none;"
                     f"animation-timing-function:steps({count})}}{100 * stop / end:.2f}%,100%"
                     f"{{transform:translateX({size + 8:.1f}px)}}}}")
        style.append(f"#t{number}{{animation-name:t{number};transform:translateX({size + 8:.1f}px)}}")
        body.append(f'<rect id="t{number}" class="v" x="{EDGE + 2 * CELL:.1f}" y="{BAR + EDGE + index * LINE}" '
                    f'width="{size + 8:.1f}" height="{LINE}"/>')
    scroll = [(0, "transform:none")]
    for index, (at, _, _) in enumerate(rows):
        if index >= ROWS:
            scroll.append((at, f"transform:translateY({-(index - ROWS + 1) * LINE}px)"))
    last = scroll[-1][1]
    style.append(keyframes("scroll", [*scroll, (end, last)], end))
    style.append(f"#s{{animation-name:scroll;{last}}}")
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" role="img"
  aria-label="A terminal: crisweep finds a node with 1,400 dead containers, explains one, removes them and keeps evidence">
<style>
text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;fill:#c9d1d9}}
text.c{{fill:#fff;font-weight:600}}.p{{fill:#56d364}}.v{{fill:#0d1117}}
text,#s{{animation:{end:.2f}s step-end infinite}}rect.v{{animation:{end:.2f}s linear infinite}}
{"".join(style)}
@media (prefers-reduced-motion:reduce){{text,#s,rect.v{{animation:none}}}}
</style>
<defs><clipPath id="w"><rect y="{BAR}" width="{width:.0f}" height="{height - BAR - 6:.0f}"/></clipPath></defs>
<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#0d1117" stroke="#30363d"/>
<g fill="#484f58"><circle cx="18" cy="14" r="5"/><circle cx="36" cy="14" r="5"/><circle cx="54" cy="14" r="5"/></g>
<g clip-path="url(#w)"><g id="s">
{chr(10).join(body)}
</g></g>
</svg>
"""


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if "RECORDING" not in os.environ:
        isolate(sys.argv)
    rows, typed, end = play(record(sys.argv[1]))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(rows, typed, end))
    print(f"{sys.argv[2]}: {end:.0f} s, {len(rows)} lines")


main()
