#!/usr/bin/env bash
# Writes the bill of materials of the program as CycloneDX 1.6 JSON to standard output: every crate that a build for
# this target compiles, with version, licence, checksum and dependencies. Needs cargo and awk, no network.
#   deploy/sbom.sh [TARGET] >crisweep.cdx.json      TARGET: a target triple, else the host's
# The same Cargo.lock, features and target give the same bytes; with SOURCE_DATE_EPOCH set there is a date, too.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
export LC_ALL=C

target=${1:-$(rustc -vV | sed -n 's/^host: //p')}
# Dependencies for tests are left out: "normal" and "build" are what a build of the program uses.
tree=$(cargo tree --locked --package crisweep --target "$target" --edges normal,build --prefix depth \
  --format '|{p}|{l}|{r}')
digest=$(printf '%s\n%s\n' "$target" "$tree" | sed 's| (/[^)]*)||' | cat - Cargo.lock | sha256sum)
date=${SOURCE_DATE_EPOCH:+$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)}

awk -v target="$target" -v digest="$digest" -v date="$date" -F '|' '
  function quoted(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return "\"" text "\"" }
  function purl(key) { return (key in sums ? "pkg:cargo/" : "pkg:generic/") names[key] "@" versions[key] }
  # A UUID of version 8: its bits come from the digest, so that the same content has the same number.
  function serial() {
    return "urn:uuid:" substr(digest, 1, 8) "-" substr(digest, 9, 4) "-8" substr(digest, 14, 3) "-a" \
      substr(digest, 18, 3) "-" substr(digest, 21, 12)
  }
  function component(key, type, indent,    text) {
    text = "{\n" indent "  \"type\": \"" type "\",\n" indent "  \"bom-ref\": " quoted(purl(key))
    text = text ",\n" indent "  \"name\": " quoted(names[key]) ",\n" indent "  \"version\": " quoted(versions[key])
    if (key in sums)
      text = text ",\n" indent "  \"hashes\": [{ \"alg\": \"SHA-256\", \"content\": \"" sums[key] "\" }]"
    text = text ",\n" indent "  \"licenses\": [{ \"expression\": " quoted(licences[key]) " }]"
    text = text ",\n" indent "  \"purl\": " quoted(purl(key))
    if (repositories[key] != "")
      text = text ",\n" indent "  \"externalReferences\": [{ \"type\": \"vcs\", \"url\": " \
        quoted(repositories[key]) " }]"
    return text "\n" indent "}"
  }
  # First file: Cargo.lock, for the checksums.
  FNR == NR {
    split($0, word, "\"")
    if ($0 ~ /^name = /) name = word[2]
    if ($0 ~ /^version = /) version = word[2]
    if ($0 ~ /^checksum = /) sums[name " v" version] = word[2]
    next
  }
  # Second file: the tree, each line with its depth.
  {
    depth = $1
    split($2, word, " ")
    key = word[1] " " word[2]
    sub(/ \(\*\)$/, "", $4)
    if (!(key in names)) {
      names[key] = word[1]
      versions[key] = substr(word[2], 2)
      gsub(/ ?\/ ?/, " OR ", $3)
      licences[key] = $3
      repositories[key] = $4
      order[++count] = key
    }
    above[depth] = key
    if (depth > 0 && !((above[depth - 1], key) in edges)) {
      edges[above[depth - 1], key] = 1
      needs[above[depth - 1]] = needs[above[depth - 1]] (needs[above[depth - 1]] == "" ? "" : ", ") quoted(purl(key))
    }
  }
  END {
    print "{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.6\","
    print "  \"serialNumber\": \"" serial() "\",\n  \"version\": 1,"
    print "  \"metadata\": {"
    if (date != "") print "    \"timestamp\": \"" date "\","
    print "    \"properties\": [{ \"name\": \"cargo:target\", \"value\": " quoted(target) " }],"
    print "    \"component\": " component(order[1], "application", "    ") "\n  },"
    print "  \"components\": ["
    for (n = 2; n <= count; n++) print "    " component(order[n], "library", "    ") (n < count ? "," : "")
    print "  ],\n  \"dependencies\": ["
    for (n = 1; n <= count; n++)
      print "    { \"ref\": " quoted(purl(order[n])) ", \"dependsOn\": [" needs[order[n]] "] }" (n < count ? "," : "")
    print "  ]\n}"
  }
' Cargo.lock <(printf '%s\n' "$tree")
