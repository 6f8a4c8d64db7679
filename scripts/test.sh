#!/usr/bin/env bash
# Run the whole test suite, layer by layer. All layers run even if one fails. A table at the end shows all results.
set -uo pipefail
cd "$(dirname "$0")/.."

make=${MAKE:-make}
table=
failed=0

row() { table+=$(printf '  %-12s %12s  %s' "$1" "$2" "$3")$'\n'; }

# layer NAME TARGET BUDGET: run a make target, and record its result and time. Exceeding the budget is reported but is not
# a failure, because machines differ. All layers together have a budget of 15 minutes.
layer() {
  local began=$SECONDS verdict=passed
  echo "penstock: $1 …"
  "$make" "$2" || verdict=FAILED
  conclude "$1" $verdict $((SECONDS - began)) "$3"
}

# conclude NAME VERDICT SECONDS BUDGET: record the result of a layer.
conclude() {
  local verdict=$2
  [ "$verdict" = passed ] || failed=1
  [ "$3" -le "$4" ] || verdict+=", over its budget"
  row "$1" "$3 of $4 s" "$verdict"
  [ "$2" = passed ]
}

# quietly NAME TARGET: run a make target, and keep its output and result for `joined`.
quietly() {
  local began=$SECONDS verdict=passed
  "$make" "$2" >"$said/$1" 2>&1 || verdict=FAILED
  echo "$verdict $((SECONDS - began))" >"$said/$1.end"
}

# joined NAME BUDGET: print the output of a layer that `quietly` has run, and record its result.
joined() {
  local verdict took
  cat "$said/$1"
  read -r verdict took <"$said/$1.end"
  conclude "$1" "$verdict" "$took" "$2"
}

said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT

layer tools tools 150
# In parallel with the build and the compiled tests: first the layers that need no compiler, then the others.
(
  quietly lint lint
  quietly interpreted test-interpreted
  while [ ! -e "$said/built" ]; do sleep 1; done
  if [ "$(cat "$said/built")" = 0 ]; then
    quietly spark test-spark
    quietly simulation test-simulation
    quietly fronts test-fronts
  fi
) &
layer build setup 200
built=$?
echo $built >"$said/built"
core=$(cat .venv/core 2>/dev/null)
if [ $built != 0 ]; then
  row compiled - "not run: the build failed"
elif [ "$core" = compiled ]; then
  layer compiled test-compiled 500
elif [ "${CI:-}" = true ]; then
  row compiled - "FAILED: CI must test the compiled core, but the core is $core"
  failed=1
else
  row compiled - "skipped: $core"
fi
wait
joined lint 60
joined interpreted 300
for name in spark simulation fronts; do
  if [ $built = 0 ]; then joined $name 300; else row $name - "not run: the build failed"; fi
done

printf '\n%s' "$table"
exit $failed
