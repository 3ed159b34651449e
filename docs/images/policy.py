#!/usr/bin/env python3
"""Draws the examples of docs/policy.md that have a picture: each object a bar from its creation to its exit.

Each picture holds the text of its example, and a test compares the two. Run it by `make pictures`.
"""

import re
from html import escape
from pathlib import Path

IMAGES = Path(__file__).parent
PAGE = (IMAGES.parent / "policy.md").read_text(encoding="utf-8")
EXAMPLE = re.compile(r"!\[[^\]]*\]\(images/(policy-[\w-]+\.svg)\)\n\n```text\n(.*?)```", re.S)
HOURS = {"h": 1.0, "m": 1 / 60}
LEFT, RIGHT, ROW, TOP, CHART = 140, 320, 34, 34, 370
COLOURS = {"remove": "#d1495b", "keep": "#2e8b57", "use": "#3b78c3"}


def hours(text):
    return float(text[:-1]) * HOURS[text[-1]]


def bars(case):
    """Each object as (name, hours since the beginning, hours since the end, verdict, reason, the kubelet's verdict)."""
    for line in case.splitlines():
        found = re.match(r"(?:(sandbox) )?(\S+#\d+) (\w+) (\w+)(?: created (\w+))?.* -> (\w+) (\S+)(?: \(kubelet: (\w+)\))?",
                         line)
        if not found:
            continue
        sandbox, name, state, age, created, verdict, reason, kubelet = found.groups()
        begin = hours(created or age)
        end = hours(age) if state == "exited" else 0.0
        name = f"{name} (sandbox)" if sandbox else name
        yield name, begin, end, verdict if state not in ("running", "ready") else "use", state, reason, kubelet


def draw(case):
    rows = list(bars(case))
    span = max(begin for _, begin, *_ in rows) * 1.06
    height = TOP + ROW * len(rows) + 26
    width = LEFT + CHART + RIGHT

    def x(ago):
        return LEFT + CHART * (1 - ago / span)

    parts = []
    step = 1 if span < 8 else 2
    for ago in range(0, int(span) + 1, step):
        parts.append(f'<line class="g" x1="{x(ago):.1f}" x2="{x(ago):.1f}" y1="{TOP - 8}" y2="{height - 20}"/>'
                     f'<text class="d" text-anchor="middle" x="{x(ago):.1f}" y="{height - 6}">'
                     f'{"now" if ago == 0 else f"{ago}h ago"}</text>')
    for number, (name, begin, end, verdict, state, reason, kubelet) in enumerate(rows):
        y = TOP + ROW * number
        word = "stays" if verdict != "remove" else "goes"
        other = {"remove": "; the kubelet removes it", "keep": "; the kubelet keeps it"}.get(kubelet, "")
        parts.append(f'<text class="n" x="{LEFT - 10}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{x(begin):.1f}" y="{y}" width="{x(end) - x(begin):.1f}" height="20" rx="3" '
                     f'fill="{COLOURS[verdict]}"/>')
        if state == "exited":
            parts.append(f'<line x1="{x(end):.1f}" x2="{x(0):.1f}" y1="{y + 10}" y2="{y + 10}" '
                         f'stroke="{COLOURS[verdict]}" stroke-dasharray="3 3"/>')
        parts.append(f'<text class="n" x="{LEFT + CHART + 12}" y="{y + 14}"><tspan fill="{COLOURS[verdict]}" '
                     f'font-weight="600">{word}</tspan> {escape(reason + other)}</text>')
    title = escape(case.splitlines()[0].removeprefix("case "))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>{title}</title>
<desc>{escape(case, quote=False)}</desc>
<style>text{{font:13px system-ui,sans-serif;fill:#1f2328}}.d{{font-size:11px;fill:#656d76}}.g{{stroke:#d0d7de}}
@media (prefers-color-scheme:dark){{text{{fill:#e6edf3}}.d{{fill:#8d96a0}}.g{{stroke:#30363d}}}}</style>
<text class="d" x="{LEFT}" y="14">{title}</text>
{chr(10).join(parts)}
</svg>
"""


for file, case in EXAMPLE.findall(PAGE):
    (IMAGES / file).write_text(draw(case), encoding="utf-8")
    print(IMAGES / file)
