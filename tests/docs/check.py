#!/usr/bin/env python3
"""Runs the commands of the documents beside the demo: every fence `sh` of README.md and docs, but for docs/dev.

A command must end with 0 and no HTTP error. `sh exit=1` allows another status to each command of its block. What belongs
to another machine (FOREIGN) is only parsed, as are fences `console`. `console verbatim` is run too: each `$ command`
must print exactly what follows it. Names and ids that only exist in the text are replaced (Facts). Run it by
tests/with-demo.sh.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
URL = os.environ["DEMO_URL"]
NODE = pathlib.Path(os.environ["DEMO_DIR"])
# A whole pass over the demo's node takes 20 s, and minutes on a machine that is much too busy.
TIMEOUT = 600

# Programs of a real node, a cluster or a build.
FOREIGN = set(
    "apt-get cargo crictl ctr deploy/image/build.sh helm install journalctl kubectl make nsenter pidof sudo "
    "systemctl".split()
)
# Files of a real node.
FOREIGN_FILES = re.compile(r"/(run|var/lib)/containerd|/etc/crisweep/(?!crisweep.yaml)|/proc/")
# Commands whose status depends on the node; some of the demo's sandboxes cannot be removed.
STATUSES = {"crisweep check": {0, 1, 2}, "crisweep gc": {0, 1}}


class Block:
    def __init__(self, path, line, info, text):
        self.place = f"{path.relative_to(ROOT)}:{line}"
        self.words, self.text = info.split(), text
        exits = [word[5:] for word in self.words if word.startswith("exit=")]
        self.statuses = {int(status) for word in exits for status in word.split("|")} or {0}


def blocks(path):
    fence, found = None, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r"( *)```(.*)", line)
        if fence is None and match:
            fence = (match[1], match[2].strip(), number, [])
        elif fence and match and match[1] == fence[0]:
            found.append(Block(path, fence[2], fence[1], "\n".join(fence[3])))
            fence = None
        elif fence:
            fence[3].append(line.removeprefix(fence[0]))
    return found


def parses(text):
    return subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True).stderr


def statements(text):
    """The complete commands of a block, each with the lines that it goes on over."""
    found, open_ = [], ""
    for line in text.splitlines():
        open_ += line + "\n"
        goes_on = open_.rstrip().endswith(("|", "\\", "&&")) or parses(open_)
        if not goes_on:
            if not all(re.match(r"\s*(#|$)", part) for part in open_.splitlines()):
                found.append(open_)
            open_ = ""
    return found + [open_] * bool(open_)


def programs(statement):
    """The first words of the commands of a statement."""
    bare = re.sub(r"'[^']*'", "''", statement)
    for part in re.split(r"\|\|?|&&?|;|\$\(|<\(|\bdo\b|\n", bare):
        words = [word.strip('()"') for word in part.split()]
        words = [word for word in words if "=" not in word]
        while words and words[0] in ("time", "umask", "xargs"):
            words = words[1:]
            while words and re.match(r"-|\d", words[0]):
                words = words[1:]
        if words:
            yield words[0]


def ask(path, method="GET"):
    request = urllib.request.Request(URL + path, method=method)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        return json.load(answer)


class Facts:
    """What the names of the documents stand for on the demo's node."""

    def __init__(self):
        self.passed = ask("/gc?target=containers&max_removals=5&wait=60s", "POST")["id"]
        plan = ask("/api/v1/plan")
        kept = [it for it in plan["kept"] if it["pod"] or it["target"] == "images"]
        of = lambda target: [it for it in kept if it["target"] == target]
        self.container = next(it for it in of("containers") if it["reason"] == "running")
        self.image = next(it for it in of("images") if it["reason"] == "in-use")
        self.log = next(it for it in of("logs") if it["id"].endswith(self.container["pod"]["uid"]))
        self.pod = "{namespace}/{name}".format(**self.container["pod"])

    def saved(self):
        return ask("/api/v1/plans", "POST")["id"]

    def waiting(self):
        """A pass that is not done: one that waits for another."""
        ask("/gc?target=all", "POST")
        return ask(f"/gc?target=all&max_removals={int(time.monotonic() * 1000)}", "POST")["id"]

    def evidence(self):
        return str(ask("/api/v1/evidence?limit=1")["evidence"][0]["number"])

    def put_into(self, text):
        attempt = "{name}#{attempt}".format(**self.container)
        for pattern, value in [
            (r"localhost:20950", lambda: URL.removeprefix("http://")),
            (r"/etc/crisweep/crisweep.yaml", lambda: str(ROOT / "deploy/crisweep.yaml")),
            (r"(?<=/passes/)ID", self.waiting if "DELETE" in text else lambda: self.passed),
            (r"(?<=explain/)ID|(?<=explain )ID", lambda: self.container["id"]),
            (r"(?<=plan=)ID|(?<=plan )ID|(?<=/plans/)ID", self.saved),
            (r"(?<=evidence/)ID|(?<=evidence show )ID", self.evidence),
            (r"(?<=passes )ID|(?<=pass=)ID|\b20260131T090000Z-\d+", lambda: self.passed),
            (r"\b9cc73d\b", lambda: self.container["id"][:8]),
            (r"\bshop/web/app#3\b", lambda: f"{self.pod}/{attempt}"),
            (r"\bshop/web#1\b", lambda: f"{self.pod}#0"),
            (r"\bshop/web\b(?!:)", lambda: self.pod),
            (r"\bregistry\.example/shop/web:\S+", lambda: self.image["name"]),
            (r"/var/log/pods/shop_web_\S+", lambda: self.log["id"]),
            (r"\bFILE\b", lambda: "this-node.json.zst"),
            (r"\bMOUNTPOINT\b", lambda: "/"),
        ]:
            if re.search(pattern, text):
                text = re.sub(pattern, lambda _: value(), text)
        return text


def environment(at):
    """With the demo's node, and on the PATH the program and a curl that fails for an error."""
    programs = at / "bin"
    programs.mkdir()
    (programs / "crisweep").symlink_to(pathlib.Path(os.environ["CRISWEEP"]).resolve())
    curl = programs / "curl"
    curl.write_text(f'#!/bin/sh\nexec {shutil.which("curl")} --fail-with-body --max-time {TIMEOUT} "$@"\n')
    curl.chmod(0o755)
    own = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(at),
        "CONTAINER_RUNTIME_ENDPOINT": f"unix://{NODE}/cri.sock",
        "CRISWEEP__PODS__SOURCE": "file",
        "CRISWEEP__PODS__FILE": str(NODE / "pods.json"),
        "CRISWEEP__PODS__SETTLE": "0s",
        "CRISWEEP__PODS__QUIET": "0s",
        "CRISWEEP__POLICY__LOGS__PODS_ROOT": str(NODE / "log/pods"),
        "CRISWEEP__POLICY__LOGS__CONTAINERS_ROOT": str(NODE / "log/containers"),
        "CRISWEEP__STATE__DIR": str(at / "state"),
        "CRISWEEP__WEB__LISTEN": URL.removeprefix("http://"),
    }
    return os.environ | own


def is_foreign(statement):
    # The bare command serves until it is stopped.
    serves = re.match(r"crisweep\s*(#|$)", statement)
    return serves or FOREIGN_FILES.search(statement) or not FOREIGN.isdisjoint(programs(statement))


class Check:
    def __init__(self, at):
        self.at, self.environment = at, environment(at)
        self.facts = Facts()
        self.ran, self.problems = set(), []

    def document(self, path):
        """Runs a document's blocks in a directory of its own, with the files that commands name."""
        self.room = pathlib.Path(tempfile.mkdtemp(dir=self.at))
        (self.room / "new.yaml").write_text("policy:\n  containers: { max_dead: 20 }\n")
        (self.room / "audit.jsonl").write_text("")
        for block in blocks(path):
            if block.words[:1] == ["sh"]:
                self.commands(block)
            elif block.words[:1] == ["console"]:
                self.console(block)

    def run(self, statement):
        text = self.facts.put_into(statement)
        self.ran.add(statement)
        try:
            return text, subprocess.run(
                ["bash", "-o", "pipefail", "-c", text], cwd=self.room, env=self.environment, text=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT,
            )
        except subprocess.TimeoutExpired as late:
            return text, subprocess.CompletedProcess(text, "timeout", str(late.stdout))

    def commands(self, block):
        for statement in statements(block.text):
            if error := parses(statement):
                self.problems.append(f"{block.place}: {error}")
            # Many documents have the same question.
            elif not is_foreign(statement) and not (statement in self.ran and statement.startswith("curl")):
                text, done = self.run(statement)
                allowed = next((it for start, it in STATUSES.items() if text.startswith(start)), block.statuses)
                if done.returncode not in allowed:
                    end = "\n    ".join(done.stdout.strip().splitlines()[-8:])
                    self.problems.append(f"{block.place}: {text.strip()}\n  exit {done.returncode}:\n    {end}")

    def console(self, block):
        lines = block.text.splitlines()
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        if error := parses("\n".join(prompted or lines)):
            self.problems.append(f"{block.place}: {error}")
        if "verbatim" not in block.words:
            return
        for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
            command, _, wanted = part.partition("\n")
            _, done = self.run(command)
            printed, wanted = ([line.rstrip() for line in it.strip().splitlines()] for it in (done.stdout, wanted))
            if printed != wanted:
                self.problems.append(f"{block.place}: $ {command}\n  prints:\n" + done.stdout)


def main():
    began = time.monotonic()
    files = [ROOT / "README.md"] + sorted((ROOT / "docs").rglob("*.md"))
    files = [path for path in files if "dev" not in path.relative_to(ROOT).parts]
    with tempfile.TemporaryDirectory() as at:
        check = Check(pathlib.Path(at))
        for path in files:
            check.document(path)
    for problem in check.problems:
        print(problem, file=sys.stderr)
    print(f"{len(check.ran)} commands of {len(files)} documents, {time.monotonic() - began:.0f} s")
    # Fewer: the documents are not read as they should be.
    sys.exit(bool(check.problems) or len(check.ran) < 40)


main()
