"""Writes six hours of a fleet of 30 simulated nodes as OpenMetrics, for `promtool tsdb create-blocks-from openmetrics`.

The same at each run. What happens in it:
  worker-17  at 07:30 its pod source fails. Every dead container is then the newest of a pod that may exist, so passes
             take surplus only, and the list of containers passes 75 % of its limit. At 10:20 the source answers again,
             and the next pass sweeps the node.
  worker-08  has a slow network plugin, which fails for five sandboxes.
  worker-23  has a runtime that is down for four minutes.
  worker-02 and worker-03 only observe; from 07:00 on they enforce.
  From 08:30 on all nodes get a new version, one each minute.
  worker-31  has no agent.
"""

import random

START = 1767247200  # 2026-01-01T06:00:00Z
STEP = 60
STEPS = 6 * 60
END = START + (STEPS - 1) * STEP
ROW_BYTES = {"containers": 2900, "sandboxes": 900, "images": 420}
LIMIT_BYTES = 16 << 20
DISK_BYTES = 200 << 30
DISK_INODES = 13_107_200
MAX_DEAD = 200
BUCKETS = [0.005, 0.025, 0.1, 0.5, 2.5, 5.0, 15.0, 60.0]
TARGETS = ["containers", "sandboxes", "logs", "images"]
REASONS = {
    "containers": ["pod-deleted", "superseded", "over-cap"],
    "sandboxes": ["pod-deleted", "superseded", "over-cap"],
    "logs": ["pod-deleted", "dead-link", "container-removed"],
    "images": ["space", "age"],
}
CLASSES = ["network-teardown", "plugin-missing", "busy", "timeout", "other"]
BRAKES = ["pause", "cooldown", "max-passes-per-hour", "fleet-hold", "fleet-unknown", "fleet-storm", "fleet-budget"]
RESULTS = ["accepted", "merged", "duplicate", "other-node", "not-routed", "braked", "refused"]
COLLECTORS = ["runtime", "containers", "sandboxes", "images", "filesystems", "pods", "logs"]


def minute(clock):
    hours, minutes = clock.split(":")
    return (int(hours) - 6) * 60 + int(minutes)


class Node:
    """One node, minute by minute. `due` is what a pass may remove, `kept` the dead that it may not."""

    def __init__(self, number):
        self.random = random.Random(number)
        self.number = number
        self.name = f"worker-{number:02d}"
        self.running = self.random.randint(38, 70)
        self.dead = self.random.randint(60, 190)
        self.due = self.random.randint(0, 200)
        self.sandboxes = self.random.randint(20, 80)
        self.sandboxes_due = self.random.randint(0, 30)
        self.litter = self.random.uniform(0.3, 2.4)
        self.images = self.random.randint(40, 90)
        self.disk = self.random.uniform(0.42, 0.7)
        self.disk_pace = self.random.uniform(0.00005, 0.0004)
        self.known = True
        self.pass_left = 0
        self.outcome = None
        self.brake_until = -1
        self.exited_at = START - self.random.randint(3600, 300_000)
        self.counters = {}
        self.last = {}
        self.alerting = False
        self.due_since = None
        self.quarantined = 5 if number == 8 else 0
        self.evidence = 20 << 20
        self.started = START - 86_400 * 3 - number
        for target in TARGETS:
            for outcome in ["completed", "partial"]:
                for cause in ["alert", "threshold"]:
                    self.count("crisweep_passes_total", 0, target=target, cause=cause, outcome=outcome)
            for reason in REASONS[target]:
                self.count("crisweep_removals_total", 0, target=target, reason=reason)
            for kind in CLASSES if target == "sandboxes" else ["busy", "timeout", "other"]:
                self.count("crisweep_removal_failures_total", 0, target=target, **{"class": kind})
            self.count("crisweep_freed_bytes_total", 0, target=target)
        for target in ["containers", "sandboxes"]:
            for bound in [*BUCKETS, "+Inf"]:
                self.count("crisweep_removal_duration_seconds_bucket", 0, target=target, le=bound)
        for result in RESULTS:
            self.count("crisweep_alerts_total", 0, result=result)
        for cause in ["log", "log-timeout", "database"]:
            self.count("crisweep_evidence_failures_total", 0, cause=cause)
        for name in ["pass_duration_seconds_sum", "pass_duration_seconds_count", "state_write_failures_total",
                     "evidence_kept_total", "evidence_dropped_total", "log_lines_dropped_total"]:
            self.count(f"crisweep_{name}", 0)
        self.count("crisweep_http_requests_total", 0, endpoint="metrics", code="2xx")
        self.count("crisweep_events_total", 0, result="failed")
        self.count("process_cpu_seconds_total", 0)

    def count(self, name, by, **labels):
        key = (name, tuple(labels.items()))
        self.counters[key] = self.counters.get(key, 0) + by

    def step(self, now):
        """Lives for one minute, and returns what a scrape then shows: (name, labels, value)."""
        incident = self.number == 17 and minute("07:30") <= now
        if self.number == 17:
            self.known = not minute("07:30") <= now < minute("10:20")
        if self.number == 23 and minute("09:12") <= now < minute("09:16"):
            return self.service(now, up=0)
        pace = 26 if incident and now < minute("10:24") else self.litter
        new = int(pace) + (self.random.random() < pace % 1)
        if self.known:
            if incident and self.dead > MAX_DEAD:
                self.due, self.dead = self.due + self.dead - MAX_DEAD, MAX_DEAD
                self.sandboxes_due, self.sandboxes = self.sandboxes_due + self.sandboxes - MAX_DEAD, MAX_DEAD
            self.due += new
            self.sandboxes_due += self.random.random() < self.litter / 4
        else:
            self.dead += new
            self.sandboxes += new
        self.running += self.random.choice([-1, 0, 0, 0, 1])
        self.disk = min(self.disk + self.disk_pace * self.random.random(), 0.84)
        self.think(now)
        return self.service(now, up=1) + self.runtime(now)

    def think(self, now):
        if self.pass_left:
            self.sweep(now)
            return
        heavy = self.weight("containers") > 0.75 * LIMIT_BYTES
        wants = heavy or self.due > 300 or self.sandboxes_due > 50
        if not wants:
            self.due_since = None
            self.alerting = False
            return
        self.due_since = now if self.due_since is None else self.due_since
        self.alerting = now - self.due_since >= 5
        if self.alerting and not self.observes(now) and now >= self.brake_until:
            self.count("crisweep_alerts_total", 1, result="accepted")
            self.pass_left = 1 + self.due // 1000 + self.sandboxes_due // 1500
            self.begun = {"exited": self.dead + self.due, "notready": self.sandboxes + self.sandboxes_due,
                          "containers": self.weight("containers"), "sandboxes": self.weight("sandboxes"),
                          "disk": self.disk, "minutes": self.pass_left}
            self.sweep(now)

    def sweep(self, now):
        """One minute of a pass: containers first, then their sandboxes, then the images."""
        last = self.pass_left == 1
        containers = self.due if last else min(self.due, 1000)
        sandboxes = self.sandboxes_due if last else 0 if containers == 1000 else min(self.sandboxes_due, 1500)
        reason = "over-cap" if self.begun["exited"] > 1000 else "pod-deleted"
        self.removed("containers", containers - containers // 3, reason)
        self.removed("containers", containers // 3, "superseded")
        self.removed("sandboxes", sandboxes, reason)
        self.removed("logs", containers, "container-removed")
        self.due -= containers
        self.sandboxes_due -= sandboxes
        self.count("crisweep_evidence_kept_total", containers)
        self.evidence += containers * 6000
        if self.quarantined:
            self.count("crisweep_removal_failures_total", self.quarantined, target="sandboxes", **{"class": "network-teardown"})
        self.pass_left -= 1
        if self.pass_left == 0:
            self.end(now)

    def removed(self, target, number, reason):
        self.count("crisweep_removals_total", number, target=target, reason=reason)
        if target not in ["containers", "sandboxes"]:
            return
        slow = 40 if self.number == 8 and target == "sandboxes" else 1
        for _ in range(number):
            seconds = self.random.lognormvariate(-3.6 if target == "containers" else -1.6, 0.7) * slow
            for bound in BUCKETS:
                if seconds <= bound:
                    self.count("crisweep_removal_duration_seconds_bucket", 1, target=target, le=bound)
            self.count("crisweep_removal_duration_seconds_bucket", 1, target=target, le="+Inf")

    def end(self, now):
        before = self.begun["disk"]
        freed = self.random.uniform(0.01, 0.05)
        self.disk = max(self.disk - freed, 0.3)
        self.removed("images", 6, "space" if before > 0.8 else "age")
        self.count("crisweep_freed_bytes_total", int(freed * DISK_BYTES), target="images")
        self.count("crisweep_freed_bytes_total", 1 << 24, target="logs")
        outcome = "completed" if self.known and not self.quarantined else "partial"
        cause = "alert" if self.number % 3 else "threshold"
        for target in TARGETS:
            self.count("crisweep_passes_total", 1, target=target, cause=cause, outcome=outcome)
        self.count("crisweep_pass_duration_seconds_sum", self.begun["minutes"] * 60 - 25)
        self.count("crisweep_pass_duration_seconds_count", 1)
        self.count("crisweep_events_total", 1, result="created")
        self.brake_until = now + 5
        self.due_since = now if not self.known else None
        self.exited_at = self.time(now) - self.random.randint(4000, 20_000)
        self.last.update({
            ("crisweep_last_pass_timestamp_seconds", (("outcome", outcome),)): self.time(now),
            ("crisweep_last_pass_image_fs_used_ratio", (("moment", "before"),)): round(before, 4),
            ("crisweep_last_pass_image_fs_used_ratio", (("moment", "after"),)): round(self.disk, 4),
            ("crisweep_last_pass_image_fs_used_bytes", (("moment", "before"),)): int(before * DISK_BYTES),
            ("crisweep_last_pass_image_fs_used_bytes", (("moment", "after"),)): int(self.disk * DISK_BYTES),
            ("crisweep_last_pass_image_fs_inodes_used", (("moment", "before"),)): int(before * 0.5 * DISK_INODES),
            ("crisweep_last_pass_image_fs_inodes_used", (("moment", "after"),)): int(self.disk * 0.5 * DISK_INODES),
        })
        after = {"containers": self.dead + self.due, "sandboxes": self.sandboxes + self.sandboxes_due}
        for target in TARGETS:
            left = self.quarantined if target == "sandboxes" else 0
            self.last["crisweep_last_pass_remaining", (("target", target),)] = left
            self.last["crisweep_last_pass_target_timestamp_seconds", (("target", target),)] = self.time(now)
        for target, state in [("containers", "exited"), ("sandboxes", "notready")]:
            self.last["crisweep_last_pass_dead", (("target", target), ("moment", "before"))] = self.begun[state]
            self.last["crisweep_last_pass_dead", (("target", target), ("moment", "after"))] = after[target]
            self.last["crisweep_last_pass_list_bytes", (("list", target), ("moment", "before"))] = self.begun[target]
            self.last["crisweep_last_pass_list_bytes", (("list", target), ("moment", "after"))] = self.weight(target)

    def observes(self, now):
        return self.number in (2, 3) and now < minute("07:00")

    def upgraded(self, now):
        return now >= minute("08:30") + self.number

    @staticmethod
    def time(now):
        return START + now * STEP

    def weight(self, which):
        rows = {
            "containers": self.running + self.dead + self.due,
            "sandboxes": self.running + self.sandboxes + self.sandboxes_due + self.quarantined,
            "images": self.images,
        }
        # No two nodes alike, or topk would choose anew at each run.
        return rows[which] * ROW_BYTES[which] + 7 * self.number

    def service(self, now, up):
        """What crisweep says of itself, also while the runtime is down."""
        self.count("process_cpu_seconds_total", round(0.15 + (2.5 if self.pass_left else 0) + self.random.random() / 10, 3))
        self.count("crisweep_http_requests_total", 1, endpoint="metrics", code="2xx")
        if self.upgraded(now) and self.started < START:
            self.started = self.time(now)
            self.counters = dict.fromkeys(self.counters, 0)
            self.last = {}
        new = self.upgraded(now)
        mode = "observe" if self.observes(now) else "enforce"
        page = [(name, dict(labels), value) for (name, labels), value in [*self.counters.items(), *self.last.items()]]
        page += [
            ("crisweep_node_info", {"node": self.name}, 1),
            ("crisweep_build_info", {"version": "0.2.0" if new else "0.1.0", "revision": "b41d2c7" if new else "9c0e11a",
                                     "arch": "amd64"}, 1),
            ("crisweep_config_info", {"hash": "51f0a9c2" if mode == "observe" else "7be1d044"}, 1),
            ("crisweep_config_last_reload_successful", {}, 0 if self.number == 29 and now > minute("09:50") else 1),
            ("cri_up", {}, up),
            ("crisweep_evidence_bytes", {}, min(self.evidence, 256 << 20)),
            ("process_resident_memory_bytes", {}, (11 << 20) + self.number * 40_000 + (self.dead + self.due) * 900),
            ("process_start_time_seconds", {}, self.started),
        ]
        page += [("crisweep_mode", {"mode": each}, int(each == mode)) for each in ["enforce", "observe"]]
        cooling = int(now < self.brake_until)
        page += [("crisweep_brake_engaged", {"brake": brake}, cooling if brake == "cooldown" else 0) for brake in BRAKES]
        failed = {"pods"} if not self.known else set()
        failed |= set(COLLECTORS) - {"pods"} if not up else set()
        for collector in COLLECTORS:
            page.append(("crisweep_collector_success", {"collector": collector}, int(collector not in failed)))
            if collector not in failed:
                seconds = {"containers": self.weight("containers") / 9e7, "pods": 0.03}.get(collector, 0.004)
                page.append(("crisweep_collector_duration_seconds", {"collector": collector},
                             round(seconds * self.random.uniform(0.8, 1.3), 4)))
        return page

    def runtime(self, now):
        """What the runtime holds, and what a pass would do about it."""
        exited, notready = self.dead + self.due, self.sandboxes + self.sandboxes_due + self.quarantined
        page = [
            ("cri_info", {"runtime": "containerd", "version": "1.7.24"}, 1),
            ("cri_oldest_exited_container_timestamp_seconds", {}, self.exited_at),
            ("crisweep_pod_source_info", {"source": "kubelet-socket", "state": "known" if self.known else "failed"}, 1),
            ("cri_image_fs_capacity_bytes", {"mountpoint": "/"}, DISK_BYTES),
            ("cri_image_fs_used_bytes", {"mountpoint": "/"}, int((self.disk - 0.02) * DISK_BYTES)),
            ("cri_image_fs_available_bytes", {"mountpoint": "/"}, int((1 - self.disk) * DISK_BYTES)),
            ("cri_image_fs_runtime_used_bytes", {"mountpoint": "/"}, int((self.disk - 0.15) * DISK_BYTES)),
            ("cri_image_fs_inodes", {"mountpoint": "/"}, DISK_INODES),
            ("cri_image_fs_inodes_free", {"mountpoint": "/"}, int((1 - self.disk * 0.5) * DISK_INODES)),
        ]
        page += self.by("cri_containers", "state", {"running": self.running, "exited": exited, "created": 0, "unknown": 0})
        page += self.by("cri_pod_sandboxes", "state", {"ready": self.running, "notready": notready})
        page += self.by("cri_images", "state", {"used": self.images * 2 // 3, "unused": self.images // 3, "pinned": 1})
        page += self.by("cri_namespace_exited_containers", "namespace",
                        {"batch": exited - exited // 5 - exited // 9, "shop": exited // 5, "kube-system": exited // 9})
        for name in ["containers", "sandboxes", "images"]:
            mode = "streaming" if self.upgraded(now) else "unary"
            weight = self.weight(name)
            page += [
                ("cri_list_response_bytes", {"list": name}, weight),
                ("cri_list_limit_bytes", {"list": name}, LIMIT_BYTES),
                ("cri_list_duration_seconds", {"list": name}, round(weight / 9e7 * self.random.uniform(0.8, 1.3), 4)),
                ("cri_list_complete", {"list": name}, 1),
                ("cri_list_mode", {"list": name, "mode": mode}, 1),
            ]
        page += self.by("crisweep_quarantined_sandboxes", "class", {c: self.quarantined if c == CLASSES[0] else 0 for c in CLASSES})
        page += self.by("crisweep_threshold_crossed", "threshold", {
            "exited_containers": int(exited > 500), "not_ready_sandboxes": int(notready > 250),
            "list_limit_ratio": int(self.weight("containers") > 0.75 * LIMIT_BYTES), "image_fs_used_percent": int(self.disk > 0.85)})
        removable = {("containers", "pod-deleted"): self.due - self.due // 3, ("containers", "superseded"): self.due // 3,
                     ("sandboxes", "pod-deleted"): self.sandboxes_due}
        for target in TARGETS:
            for reason in REASONS[target]:
                page.append(("crisweep_removable", {"target": target, "reason": reason}, removable.get((target, reason), 0)))
        kept = {("containers", "running"): self.running, ("containers", "newest"): self.dead,
                ("sandboxes", "ready"): self.running, ("sandboxes", "has-containers"): self.sandboxes,
                ("sandboxes", "quarantined"): self.quarantined}
        page += [("crisweep_kept", {"target": t, "reason": r}, value) for (t, r), value in kept.items()]
        return page

    @staticmethod
    def by(name, label, values):
        return [(name, {label: key}, value) for key, value in values.items()]


def main():
    families = {}
    for number in range(1, 31):
        node = Node(number)
        target = {"cluster": "prod", "job": "crisweep", "instance": f"10.0.3.{number}:20950"}
        for now in range(STEPS):
            for name, labels, value in node.step(now):
                store(families, name, {**target, **labels}, now, value)
            if node.alerting:
                name = "CrisweepListNearLimit" if node.number == 17 else "CrisweepTooManyExitedContainers"
                alert = {"alertname": name, "alertstate": "firing", "crisweep": "all", "severity": "warning"}
                store(families, "ALERTS", {**target, **alert, "node": node.name}, now, 1)
            store(families, "up", target, now, 1)
    state = {"cluster": "prod", "job": "kube-state-metrics", "instance": "10.0.9.9:8080"}
    for number in range(1, 32):
        for now in range(STEPS):
            store(families, "kube_node_info", {**state, "node": f"worker-{number:02d}"}, now, 1)
    for name in sorted(families):
        print(f"# TYPE {name.removesuffix('_total')} {'counter' if name.endswith('_total') else 'unknown'}")
        for labels, samples in families[name].items():
            print("\n".join(f"{name}{{{labels}}} {value} {time}" for time, value in samples))
    print("# EOF")


def store(families, name, labels, now, value):
    text = ",".join(f'{key}="{value}"' for key, value in labels.items())
    families.setdefault(name, {}).setdefault(text, []).append((Node.time(now), value))


if __name__ == "__main__":
    main()
