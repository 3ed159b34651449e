"""Checks rendered manifests: each document against the schemas of Kubernetes, resources of the Prometheus operator by
the fields that it needs (their schemas are in no package registry), each crisweep.yaml by crisweep itself.

    check.py CRISWEEP NEWEST,...,OLDEST FILE...
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml

OPERATOR = "monitoring.coreos.com/"

# As in every pod; without them crisweep refuses the API server as the source of its pods.
IN_A_POD = {**os.environ, "KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def fields(text):
    return set(text.split())


# Fields that are required, and all that are known, of what the chart writes.
METADATA = fields("name namespace labels annotations")
RELABELING = fields("sourceLabels separator targetLabel regex modulus replacement action")
ENDPOINT = fields("port path scheme interval scrapeTimeout relabelings authorization tlsConfig basicAuth")
RULE = fields("alert record expr for keep_firing_for labels annotations")


def need(value, required, known, where):
    if not isinstance(value, dict):
        raise ValueError(f"{where} is no mapping")
    keys = set(value)
    if not required <= keys <= known:
        raise ValueError(f"{where}: missing {sorted(required - keys)}, unknown {sorted(keys - known)}")


def text(value, where):
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where} is no text")


def monitor(spec, key):
    need(spec, {"selector", key}, {"selector", key, "jobLabel"}, "spec")
    need(spec["selector"], {"matchLabels"}, {"matchLabels"}, "spec.selector")
    for endpoint in spec[key]:
        need(endpoint, {"port"}, ENDPOINT, key)
        for name in ("port", "path", "scheme", "interval", "scrapeTimeout"):
            text(endpoint[name], f"{key}.{name}")
        for relabeling in endpoint.get("relabelings", []):
            need(relabeling, set(), RELABELING, "relabelings")


def rules(spec):
    need(spec, {"groups"}, {"groups"}, "spec")
    for group in spec["groups"]:
        need(group, {"name", "rules"}, fields("name rules interval limit labels"), "groups")
        for rule in group["rules"]:
            need(rule, {"expr"}, RULE, "rules")
            if ("alert" in rule) == ("record" in rule):
                raise ValueError("a rule is an alert or a record")
            text(rule["expr"], "expr")
            for name, value in {**rule.get("labels", {}), **rule.get("annotations", {})}.items():
                text(value, name)


def webhook(spec):
    need(spec, {"route", "receivers"}, {"route", "receivers"}, "spec")
    timing = fields("groupBy groupWait groupInterval repeatInterval")
    need(spec["route"], {"receiver", "matchers"} | timing, {"receiver", "matchers"} | timing, "route")
    for matcher in spec["route"]["matchers"]:
        need(matcher, fields("name matchType value"), fields("name matchType value"), "matchers")
    for receiver in spec["receivers"]:
        need(receiver, {"name", "webhookConfigs"}, {"name", "webhookConfigs"}, "receivers")
        for config in receiver["webhookConfigs"]:
            need(config, {"url"}, fields("url sendResolved httpConfig"), "webhookConfigs")
            # Alertmanager knows Go's own functions alone; urlquery keeps the label from ending the host.
            if re.findall("{{(.*?)}}", config["url"]) != [" urlquery .GroupLabels.pod_host "]:
                raise ValueError(f"the template in {config['url']}")
            need(config["httpConfig"], {"authorization"}, {"authorization"}, "httpConfig")
    if spec["route"]["receiver"] not in [receiver["name"] for receiver in spec["receivers"]]:
        raise ValueError("the route's receiver is missing")


def operator(document):
    need(document["metadata"], {"name", "namespace"}, METADATA, "metadata")
    kind, spec = document["kind"], document["spec"]
    if kind == "PodMonitor":
        monitor(spec, "podMetricsEndpoints")
    elif kind == "ServiceMonitor":
        monitor(spec, "endpoints")
    elif kind == "PrometheusRule":
        rules(spec)
    elif kind == "AlertmanagerConfig":
        webhook(spec)
    else:
        raise ValueError(f"unknown kind {kind}")


def rights(rules):
    for rule in rules:
        for key in ("apiGroups", "resources", "verbs"):
            if "*" in rule[key]:
                raise ValueError(f"a wildcard in {key}")
        if {"secrets", "nodes/proxy", "nodes", "pods/exec"} & set(rule["resources"]):
            raise ValueError(f"a right to {rule['resources']}")


# Rights within the namespace: to objects of known names alone.
NAMED = [("", "configmaps", ["get"]), ("coordination.k8s.io", "leases", ["get", "update"])]


# Events are made under new names, so that this right cannot be bound to any.
EVENTS = {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]}


def named_rights(rules):
    for rule in rules:
        if rule == EVENTS:
            continue
        is_known = any(rule["apiGroups"] == [group] and rule["resources"] == [resource] and rule["verbs"] == verbs
                       for group, resource, verbs in NAMED)
        if not is_known or not rule.get("resourceNames") or "*" in rule["resourceNames"]:
            raise ValueError(f"a right that is not to objects of known names: {rule}")


def pod(spec):
    """Whatever the values are: no privilege, and of the host only the state and, for root, the logs are writable."""
    if spec.get("hostPID") or spec.get("hostIPC"):
        raise ValueError("a namespace of the host")
    # The schemas do not say it: a volume's name is a label.
    for volume in spec["volumes"]:
        if not re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", volume["name"]):
            raise ValueError(f"the volume's name {volume['name']}")
    hosts = {volume["name"] for volume in spec["volumes"] if "hostPath" in volume}
    for kind, allowed in (("initContainers", ["CHOWN"]), ("containers", [])):
        for container in spec.get(kind, []):
            context = container["securityContext"]
            added = context["capabilities"].get("add", [])
            if context["privileged"] or context["allowPrivilegeEscalation"] or not context["readOnlyRootFilesystem"]:
                raise ValueError("a privilege")
            if context["capabilities"]["drop"] != ["ALL"] or added != allowed:
                raise ValueError("a capability")
            writable = {it["name"] for it in container["volumeMounts"] if not it.get("readOnly")} & hosts
            logs = {"pod-logs", "container-logs"} if context["runAsUser"] == 0 and kind == "containers" else set()
            if not writable <= {"state"} | logs:
                raise ValueError(f"writable: {writable}")


def dashboard(data):
    """The copy says what the original says."""
    for name, copy in data.items():
        with open(f"../dashboards/{name}", encoding="utf-8") as original:
            if json.loads(copy) != json.load(original):
                raise ValueError(f"{name} is not the one in dashboards/")


def configuration(crisweep, document):
    for name, value in document["data"].items():
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(value)
            file.flush()
            command = [crisweep, "config", file.name]
            done = subprocess.run(command, env=IN_A_POD, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ValueError(f"{name}: {done.stderr.strip()}")


def check(crisweep, versions, document):
    if document["apiVersion"].startswith(OPERATOR):
        operator(document)
        return
    for version in versions:
        kubernetes_validate.validate(document, version, strict=True)
    kind = document["kind"]
    if kind == "ConfigMap" and any(name.endswith(".json") for name in document["data"]):
        dashboard(document["data"])
    elif kind == "ConfigMap":
        configuration(crisweep, document)
    elif kind == "ClusterRole":
        rights(document["rules"])
    elif kind == "Role":
        named_rights(document["rules"])
    elif kind == "DaemonSet":
        pod(document["spec"]["template"]["spec"])


def main(crisweep, versions, *files):
    seen, failed = set(), 0
    for file in files:
        with open(file, encoding="utf-8") as stream:
            documents = [it for it in yaml.safe_load_all(stream) if it is not None]
        if not documents:
            print(f"{file}: nothing in it", file=sys.stderr)
            failed += 1
        for document in documents:
            key = yaml.safe_dump(document)
            if key in seen:
                continue
            seen.add(key)
            try:
                check(crisweep, versions.split(","), document)
            except Exception as error:  # Each document is named with its own problem, whatever it is.
                message = getattr(error, "message", None) or error
                print(f"{file}: {document.get('kind')}: {message}", file=sys.stderr)
                failed += 1
    print(f"{len(seen)} different documents, each against Kubernetes {versions}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
