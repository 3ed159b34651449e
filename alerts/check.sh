#!/bin/sh
# Checks the rules, their tests and the sample configurations, from any directory.
# Needs promtool and amtool (Debian: prometheus, prometheus-alertmanager), and the program (cargo build), whose
# `crisweep rules` makes the variants; CRISWEEP names another one.
set -eu
cd -- "$(dirname -- "$0")"

for tool in promtool amtool; do
    command -v "$tool" >/dev/null || {
        echo "$0: $tool not found; apt-get install prometheus prometheus-alertmanager" >&2
        exit 2
    }
done

crisweep=${CRISWEEP:-../target/debug/crisweep}
[ -x "$crisweep" ] || {
    echo "$0: $crisweep not found; cargo build, or set CRISWEEP" >&2
    exit 2
}

promtool check rules --lint=all --lint-fatal crisweep.rules.yaml
promtool test rules tests/*.yaml
promtool check config --lint=all --lint-fatal prometheus.sample.yaml
amtool check-config alertmanager.sample.yaml

# Two clusters may share addresses: a join or sum that names its labels drops the one that tells them apart. The
# fleet's group compares nodes, and takes those labels from `--labels`.
if sed '/name: crisweep-fleet/,$d' crisweep.rules.yaml | grep -nE '\b(on|by) ?\('; then
    echo "crisweep.rules.yaml: join with ignoring, aggregate with without" >&2
    exit 1
fi

# The variants hold what the default holds, and tell clusters apart.
variant=$(mktemp -d)
trap 'rm -rf "$variant"' EXIT
"$crisweep" rules | cmp - crisweep.rules.yaml
cp -r tests "$variant"
"$crisweep" rules --labels cluster >"$variant/crisweep.rules.yaml"
promtool check rules --lint=all --lint-fatal "$variant/crisweep.rules.yaml"
promtool test rules "$variant"/tests/*.yaml "$variant"/tests/cluster/*.yaml
"$crisweep" rules --labels cluster,region --nodes 'node!~"virtual-.+"' --runbook-url https://wiki.example.com/x/ \
    --operator >"$variant/object.yaml"
# What a PrometheusRule has under `spec` is a rule file.
sed '1,/^spec:$/d; s/^  //' "$variant/object.yaml" >"$variant/spec.rules.yaml"
promtool check rules --lint=all --lint-fatal "$variant/spec.rules.yaml"

# What a pass can help goes to crisweep and to people, all else to people alone.
route() {
    receivers=$1
    shift
    said=$(amtool config routes test --config.file=alertmanager.sample.yaml \
        --verify.receivers="$receivers" node=n1 "$@" 2>&1) || {
        echo "alertmanager.sample.yaml: $* must go to $receivers; amtool: $said" >&2
        exit 1
    }
}
route crisweep,people alertname=CrisweepTooManyExitedContainers crisweep=all
route crisweep,people alertname=CrisweepFleetStorm crisweep=hold
route people alertname=CrisweepRuntimeDown
route people alertname=CrisweepSweepDidNotHelp severity=page
route people alertname=SomebodyElses

# Each alert has its tests and its runbook, and each runbook its alert.
failed=0
alerts=$(sed -n 's/^ *- alert: *//p' crisweep.rules.yaml)
for alert in $alerts; do
    for file in "tests/$alert.yaml" "../docs/runbooks/$alert.md"; do
        [ -f "$file" ] || { echo "$alert: no $file" >&2; failed=1; }
    done
done
for file in tests/*.yaml ../docs/runbooks/Crisweep*.md; do
    alert=$(basename "$file" | sed 's/\.[a-z]*$//')
    case " $(echo $alerts) " in
        *" $alert "*) ;;
        *) echo "$file: no such alert" >&2; failed=1 ;;
    esac
done
exit "$failed"
