#!/usr/bin/env bash
# The whole suite, layer by layer. A layer that fails does not hide the next; the table at the end has them all.
set -uo pipefail
cd "$(dirname "$0")/.."

make=${MAKE:-make}
table=
failed=0

row() { table+=$(printf '  %-12s %12s  %s' "$1" "$2" "$3")$'\n'; }

# layer NAME TARGET BUDGET: run a make target, note its verdict and its time. Being slower than the budget fails nothing,
# since machines differ; it is said, because all layers of the finished product have 15 minutes between them.
layer() {
  local began=$SECONDS verdict=passed
  echo "penstock: $1 …"
  "$make" "$2" || { verdict=FAILED; failed=1; }
  local took=$((SECONDS - began))
  [ $took -le "$3" ] || verdict+=", over its budget"
  row "$1" "$took of $3 s" "$verdict"
  [ "${verdict%%,*}" = passed ]
}

layer build setup 120
built=$?
layer lint lint 30
core=$(cat .venv/core 2>/dev/null)
if [ $built != 0 ]; then
  row compiled - "not run: the build failed"
elif [ "$core" = compiled ]; then
  layer compiled test-compiled 300
elif [ "${CI:-}" = true ]; then
  row compiled - "FAILED: CI must test the compiled core, and this one is $core"
  failed=1
else
  row compiled - "skipped: $core"
fi
layer interpreted test-interpreted 300

printf '\n%s' "$table"
exit $failed
