#!/usr/bin/env bash
# Runs a command that tests, and says at its end what it did not test: among a thousand lines nobody sees that.
# Who may do everything here (root that may mount; root in a container may not) has to do everything: a test that is
# skipped fails then, and setup.sh has installed what it needs. TIDEGATE_TESTS_COMPLETE=0 lets it go.
# usage: telling-skipped.sh COMMAND…
set -uo pipefail

sys_admin=21
capabilities="$(awk '/^CapEff:/ { print $2 }' /proc/self/status)"
export TIDEGATE_TESTS_COMPLETE="${TIDEGATE_TESTS_COMPLETE:-$(((16#${capabilities:-0} >> sys_admin) & 1))}"

TIDEGATE_TESTS_SKIPPED="$(mktemp)"
export TIDEGATE_TESTS_SKIPPED
trap 'rm -f "$TIDEGATE_TESTS_SKIPPED"' EXIT

"$@"
status=$?
if [ -s "$TIDEGATE_TESTS_SKIPPED" ]; then
  printf '\nnot tested here:\n' >&2
  sort -u "$TIDEGATE_TESTS_SKIPPED" | sed 's/^/  /' >&2
fi
exit "$status"
