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

# promtool collects its garbage less often: a third of the time for 300 MB.
export GOGC=800

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

# The variants hold what the default holds, and tell clusters apart. They differ in the fleet's group alone, so that
# only its alerts are tested once more.
variant=$(mktemp -d)
trap 'rm -rf "$variant"' EXIT
"$crisweep" rules | cmp - crisweep.rules.yaml
cp -r tests "$variant"
"$crisweep" rules --labels cluster >"$variant/crisweep.rules.yaml"
promtool check rules --lint=all --lint-fatal "$variant/crisweep.rules.yaml"
sed '/name: crisweep-fleet/,$d' crisweep.rules.yaml >"$variant/shared"
sed '/name: crisweep-fleet/,$d' "$variant/crisweep.rules.yaml" | cmp - "$variant/shared"
fleet=$(sed -n '/name: crisweep-fleet/,$s/^ *- alert: *\(.*\)/\1.yaml/p' crisweep.rules.yaml)
# shellcheck disable=SC2086 # several files
(cd "$variant/tests" && promtool test rules $fleet cluster/*.yaml)
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
complain() { echo "$1" >&2; failed=1; }
alerts=$(sed -n 's/^ *- alert: *//p' crisweep.rules.yaml)
for alert in $alerts; do
    for file in "tests/$alert.yaml" "../docs/runbooks/$alert.md"; do
        [ -f "$file" ] || complain "$alert: no $file"
    done
    # When it fires, when it does not, and what neither begins nor ends it.
    for case in fires 'stays silent' '"churn:'; do
        grep -q "^  - name: $case" "tests/$alert.yaml" || complain "tests/$alert.yaml: no case $case"
    done
    # One shape, short, three commands.
    page=../docs/runbooks/$alert.md
    shape=$(sed -n 's/^## //p' "$page" | grep -v '^By hand$' | tr '\n' ,)
    [ "$shape" = 'crisweep does,You do,Commands,' ] || complain "$page: its headings are $shape"
    commands=$(sed -n '/^## Commands/,/^```$/p' "$page" | grep -cE '^(curl|crisweep|journalctl|kubectl|tr) ')
    [ "$commands" = 3 ] || complain "$page: $commands commands, not 3"
    words=$(sed '/^```/,/^```/d' "$page" | wc -w)
    [ "$words" -le 250 ] || complain "$page: $words words, more than 250"
done
# The table of the runbooks says of each alert what its rule says.
awk '
    $1 == "-" && $2 == "alert:" { alert = $3; asks = "nothing" }
    $1 == "crisweep:" { asks = $2 == "hold" ? "nothing; it holds passes" : "the alert" }
    $1 == "severity:" { severity = $2 }
    $1 == "annotations:" { print "| [" alert "](" alert ".md) | " severity " | " asks " |" }
' crisweep.rules.yaml | sort >"$variant/rules"
sed -nE 's/^(\| \[Crisweep[^|]*\|[^|]*\|)[^|]*\|/\1/p' ../docs/runbooks/README.md | sort >"$variant/table"
diff "$variant/rules" "$variant/table" >&2 || complain "docs/runbooks/README.md: its table is not that of the rules"
for file in tests/*.yaml ../docs/runbooks/Crisweep*.md; do
    alert=$(basename "$file" | sed 's/\.[a-z]*$//')
    case " $(echo $alerts) " in
        *" $alert "*) ;;
        *) complain "$file: no such alert" ;;
    esac
done
exit "$failed"
