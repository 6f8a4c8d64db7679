#!/usr/bin/env bash
# Creates .venv on a machine with Python 3.11. The Makefile calls it when necessary. Each step can be repeated.
#
#   setup.sh base     .venv with the packages that build penstock and run its server and command line
#   setup.sh spark    Spark and Java into .venv
#   setup.sh tools    the packages and programs that only the tests need
#   setup.sh wheel    a wheel of penstock into dist/
#   setup.sh package  that wheel into .venv, not editable, as users install it
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input)

say() { echo "penstock: $*"; }

# Ctrl-C ends the setup. Without this, it would count as a package that cannot be installed.
trap 'exit 130' INT

# ---- The machine -----------------------------------------------------------------------------------------------------

# Print the Python to use. Each candidate is run, because a pyenv shim may exist and still fail.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  say "Python 3.11 or newer is required, but ${PYTHON:-python3.11 or python3} is missing or older." \
      "Name it with: make setup PYTHON=/path/to/python3.11" >&2
  return 1
}

# Install Debian packages with apt-get, as root or with a passwordless sudo. Fail silently if that is not possible.
apt_install() {
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get)
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || return 1
    apt=(sudo -n "${apt[@]}")
  fi
  say "installing $* with apt-get"
  # Update once. An unreachable source is ignored here, because `install` reports missing packages.
  [ -n "${apt_updated:-}" ] || "${apt[@]}" update >/dev/null 2>&1 </dev/null || true
  apt_updated=yes
  "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null 2>&1 </dev/null
}

# Print the version like "3.11", as in the names of Debian packages.
minor_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

include_dir() { "$1" -c 'import sysconfig; print(sysconfig.get_path("include"))'; }

# Return whether a Python can build C extensions. This compiles a file, because Python's or libc's headers may be missing.
can_compile() {
  local cc
  cc=${CC:-$("$1" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}
  echo '#include <Python.h>' | $cc -I"$(include_dir "$1")" -fsyntax-only -x c - 2>/dev/null
}

# ---- The tools -------------------------------------------------------------------------------------------------------

make_venv() {
  local python=$1
  "$venv/bin/python" -m pip --version >/dev/null 2>&1 && return
  say "creating $venv with $("$python" --version)"
  rm -rf "$venv"
  "$python" -m venv "$venv" >/dev/null 2>&1 && return

  # Debian's Python lacks ensurepip and leaves an incomplete .venv.
  rm -rf "$venv"
  apt_install "python$(minor_version "$python")-venv" && "$python" -m venv "$venv" >/dev/null && return
  rm -rf "$venv"
  mkdir -p build
  "$python" -m pip install -qq --target build/virtualenv virtualenv &&
    PYTHONPATH=build/virtualenv "$python" -m virtualenv -q "$venv" && return
  say "cannot create a virtual environment: install Python's venv module (Debian: apt-get install python3-venv)" >&2
  return 1
}

find_compiler() {
  local python=$1 packages=(gcc libc6-dev)
  [ "${PENSTOCK_COMPILE:-}" = 0 ] && return
  can_compile "$python" && return
  # Only Debian's Python lacks its headers, and only for it there is a package.
  [ -e "$(include_dir "$python")/Python.h" ] || packages+=("python$(minor_version "$python")-dev")
  apt_install "${packages[@]}" || true
}

find_redis_cli() {
  command -v redis-cli >/dev/null || apt_install redis-tools ||
    say "redis-cli cannot be installed, so the tests that use it will be skipped" \
        "(Debian: apt-get install redis-tools)."
}

# Only in CI, because Debian starts the server after installing it.
find_redis_server() {
  [ "${CI:-}" != true ] || command -v redis-server >/dev/null || apt_install redis-server ||
    say "redis-server cannot be installed, so the tests of the clients with Redis will be skipped."
}

find_tarantool() {
  command -v tarantool >/dev/null || apt_install tarantool ||
    say "tarantool cannot be installed, so the tests with its client will be skipped" \
        "(Debian: apt-get install tarantool)."
}

find_tmux() {
  command -v tmux >/dev/null || apt_install tmux ||
    say "tmux cannot be installed, so the test of the README's terminal session will be skipped" \
        "(Debian: apt-get install tmux)."
}

find_openssl() {
  command -v openssl >/dev/null || apt_install openssl ||
    say "openssl cannot be installed, so the tests of TLS will be skipped (Debian: apt-get install openssl)."
}

find_curl() {
  command -v curl >/dev/null || apt_install curl ||
    say "curl cannot be installed, so the examples that use it will be skipped (Debian: apt-get install curl)."
}

find_chromium() {
  command -v chromium chromium-browser google-chrome >/dev/null || apt_install chromium ||
    say "Chromium cannot be installed, so the tests in a browser will be skipped" \
        "(Debian: apt-get install chromium)."
}

# Only in CI, because Debian starts the server after installing it.
find_prometheus() {
  [ "${CI:-}" != true ] || command -v prometheus >/dev/null || apt_install prometheus ||
    say "Prometheus cannot be installed, so the dashboard and the alerts will not be tested with it."
}

find_valgrind() {
  command -v valgrind >/dev/null || apt_install valgrind ||
    say "valgrind cannot be installed, so the instructions per command will not be checked" \
        "(Debian: apt-get install valgrind)."
}

# Print the requirements of extras in pyproject.toml, including extras that they name. "base" means the dependencies.
requirements() {
  "$venv/bin/python" - "$@" <<'PY'
import re
import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]


def show(extra):
    for line in project["dependencies"] if extra == "base" else project["optional-dependencies"][extra]:
        if own := re.fullmatch(r"penstock-queue\[([a-z,]+)\]", line):
            for named in own[1].split(","):
                show(named)
        else:
            print(line)


for extra in sys.argv[1:]:
    show(extra)
PY
}

# Install requirements from standard input. Print downloads of large packages.
install() {
  local list=$venv/requirements-$1.txt
  cat >"$list"
  "${pip[@]}" install --progress-bar off -r "$list" 2>&1 |
    sed -u -n -E 's/^ *(Downloading .* \([0-9.]+ [MG]B\)|ERROR: .*)$/penstock:   \1/p'
}

base() {
  local python
  python=$(find_python)
  make_venv "$python"
  say "installing from the package registry into $venv, with these sizes on disk:"
  say "  about  130 MB  packages of the server, the dashboard and the command line, and mypyc, which compiles the core"
  say "  about 1100 MB  Spark, Java, pyarrow and pandas (a download of 600 MB), while the core is compiled"
  find_compiler "$python"
  { requirements base demo cron; build_requirements; } | install base
}

# Print the build requirements of pyproject.toml. The build is not isolated, so it uses these packages.
build_requirements() {
  "$venv/bin/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'
}

spark() {
  say "installing Spark …"
  requirements spark | install spark ||
    say "Spark cannot be installed, so the demo runs without it and the tests of the pipeline are skipped" \
        "(pip install 'penstock-queue[spark]')."
}

tools() {
  # System programs are installed while pip runs.
  {
    find_redis_cli
    find_redis_server
    find_tarantool
    find_tmux
    find_openssl
    find_curl
    find_chromium
    find_prometheus
    find_valgrind
  } &
  say "installing the test packages …"
  requirements dev | install tools
  wait
}

# ---- The package -----------------------------------------------------------------------------------------------------

# Set `core` to "compiled" or "interpreted: REASON", and PENSTOCK_COMPILE for setup.py. Once compiling is chosen, a failure
# is fatal. The simulator is compiled only if the test tools are installed, because it takes long and only tests use it.
choose_core() {
  case ${PENSTOCK_COMPILE:-auto} in
    0) core="interpreted: PENSTOCK_COMPILE=0" ;;
    1 | all) core=compiled ;;
    *) if can_compile "$venv/bin/python"; then core=compiled; else core="interpreted: no C compiler or no Python.h"; fi ;;
  esac
  if [ "$core" != compiled ]; then
    export PENSTOCK_COMPILE=0
    say "the core is $core. It works the same, but about ten times slower."
  elif [ -e "$venv/tools" ]; then
    export PENSTOCK_COMPILE=all
    say "building the compiled core and the simulator (about 130 CPU seconds) …"
  else
    export PENSTOCK_COMPILE=1
    say "building the compiled core (about 110 CPU seconds) …"
  fi
}

wheel() {
  choose_core
  rm -rf dist
  mkdir -p build dist
  # No isolation, because mypy and setuptools are already in .venv.
  "${pip[@]}" wheel --no-build-isolation --no-deps -w dist . >build/wheel.log 2>&1 || { cat build/wheel.log; return 1; }
  echo "$core" >build/core
  say "$(ls dist/*.whl) ($core)"
}

package() {
  "${pip[@]}" install -qq --no-deps --force-reinstall dist/*.whl
  cp build/core "$venv/core"
  say "$("$venv/bin/penstock" --version)"
}

case ${1:-} in
  base | spark | tools | wheel | package) "$1" ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
