#!/usr/bin/env bash
# Run the tests of Spark with several versions of it: test_spark_versions.sh VERSION… [-- ARGUMENTS OF PYTEST]
#
# Each version has a virtual environment in build/spark/VERSION with the wheel in dist/. It is created if it is missing or
# older than pyproject.toml. At the end, one line per version shows the result. A version that pip cannot install is
# reported and is not a failure.
set -uo pipefail
cd "$(dirname "$0")/.."

versions=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  versions+=("$1")
  shift
done
[ $# = 0 ] || shift

wheel=$(ls dist/*.whl)
# What these tests need besides the extras of users. A test that needs another package is skipped.
tools=$(sed -n '/^dev = \[/,/^\]/s/^ *"\(\(boto3\|duckdb\|hypothesis\|moto\|msgpack\|polars\|pytest\)[^"]*\)".*/\1/p' pyproject.toml)
results=
failed=0

say() { echo "penstock: $*"; }

# install VERSION VENV: create a virtual environment with one version of Spark.
install() {
  local pip=("$2/bin/python" -m pip --disable-pip-version-check --no-input)
  if [ ! -e "$2/ready" ] || [ pyproject.toml -nt "$2/ready" ]; then
    say "installing Spark $1 …"
    rm -rf "$2"
    .venv/bin/python -m venv "$2" || return 1
    # The constraint is tested, too: the extra must allow this version.
    "${pip[@]}" install -q $tools "penstock-queue[server,spark] @ file://$PWD/$wheel" "pyspark==$1.*" >"$2.log" 2>&1 ||
      return 1
    touch "$2/ready"
  fi
  "${pip[@]}" install -q --no-deps --force-reinstall "$wheel" >"$2.log" 2>&1
}

mkdir -p build/spark
for version in "${versions[@]}"; do
  venv=build/spark/$version
  began=$SECONDS
  if ! install "$version" "$venv"; then
    results+="  Spark $version  not installed: $(grep -m1 ERROR "$venv.log" || tail -n1 "$venv.log")"$'\n'
    continue
  fi
  exact=$("$venv/bin/python" -c 'import pyspark; print(pyspark.__version__)')
  # Only the newest version is tested for unclosed sockets: earlier versions leave some of their own open.
  lenient=(-W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning)
  [ "$version" != "${versions[-1]}" ] || lenient=()
  say "testing Spark $exact …"
  env -u PYTHONPATH PENSTOCK_SPARK_KILLS=1 "$venv/bin/python" -m pytest tests/spark ${lenient[@]+"${lenient[@]}"} "$@" |
    tee "$venv.log"
  verdict=passed
  [ "${PIPESTATUS[0]}" = 0 ] || { verdict=FAILED; failed=1; }
  results+="  Spark $exact  $verdict: $(tail -n1 "$venv.log" | tr -d =) ($((SECONDS - began)) s)"$'\n'
done

printf '\n%s' "$results"
exit $failed
