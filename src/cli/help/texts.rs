//! What the long help of commands without a module of their own adds: exit codes and examples.

pub(in crate::cli) const SERVE: &str = "\
Exit codes:
  0  stopped by a signal
  1  no runtime is found, an address is taken, or another crisweep runs
  2  wrong arguments, or the configuration is refused

Examples:
  crisweep serve --config.file /etc/crisweep/crisweep.yaml
  crisweep serve --web.listen-address :20950 --log.format json
";

#[cfg(feature = "demo")]
pub(in crate::cli) const DEMO: &str = "\
Exit codes:
  0  stopped by a signal
  1  an address is taken
  2  wrong arguments, or the configuration is refused

Examples:
  crisweep demo                              then, elsewhere: crisweep status
  crisweep demo --web.listen-address :9999
";

pub(in crate::cli) const PLAN: &str = "\
The running service plans; without one this command looks for itself. Nothing is removed.

Exit codes:
  0  planned
  1  the node cannot be looked at, or the service that was named refuses
  2  wrong arguments, or the configuration is refused

Examples:
  crisweep plan                            the first 20 removals, and counts
  crisweep plan --all --target containers  every container, and why
  crisweep plan --save                     for crisweep gc --plan ID
  crisweep plan --output json | jq '.removals[] | {id, reason}'
";

pub(in crate::cli) const GC: &str = "\
The running service runs the pass; without one this command does, under the service's lock. Ctrl-C starts nothing \
more and waits for the removals in flight; a second one leaves at once. A pass that this command joined goes on.

Exit codes:
  0    all that was planned is gone, or there was nothing to do
  1    partial, aborted or refused: the output says why
  2    wrong arguments, or the configuration is refused
  130  left by Ctrl-C before the result was known

Examples:
  crisweep gc --dry-run                        a pass that only reports
  crisweep gc --target containers --max-removals 50
  crisweep gc --plan plan-20260131T090000Z-1   what plan --save has kept
  crisweep gc --assume-finished-after 24h      without pods: see docs/pods.md
";

pub(in crate::cli) const EVIDENCE: &str = "\
The running service answers; without one this command reads the database in state.dir.

Exit codes:
  0  shown
  1  nothing has this id, or neither the service nor the database can be read
  2  wrong arguments, or the configuration is refused

Examples:
  crisweep evidence --pod web-0 --since 2h
  crisweep evidence show 9cc73d              one, with the end of its log
";

pub(in crate::cli) const CONFIG: &str = "\
The files that the configuration names are not read: they may be on another machine. A start reads them.

Exit codes:
  0  the configuration is good
  2  it is refused; the error names each key

Examples:
  crisweep config /etc/crisweep/crisweep.yaml
  crisweep config --config.file new.yaml | grep max_dead
";

pub(in crate::cli) const PREPARE_STATE: &str = "\
Exit codes:
  0  the directory and its files have the owner
  1  they cannot be given to it, or it is a directory of others
  2  wrong arguments

Examples:
  crisweep prepare-state --owner 65532:0 /var/lib/crisweep
";
