#!/usr/bin/env bash
# Makes .venv on a machine that has Python 3.11 and little else. The Makefile decides when; each step can run again.
#
#   setup.sh base     .venv with the packages that build penstock and run its server and command line
#   setup.sh spark    Spark and Java into .venv
#   setup.sh tools    the packages and programs that only the tests need
#   setup.sh wheel    a wheel of penstock into dist/
#   setup.sh package  that wheel into .venv, not editable: what a user gets
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv
pip=("$venv/bin/python" -m pip --disable-pip-version-check --no-input)

say() { echo "penstock: $*"; }

# An interrupt ends the setup. It is not taken for a package that cannot be installed.
trap 'exit 130' INT

# ---- The machine -----------------------------------------------------------------------------------------------------

# The Python to build on. A pyenv shim may exist and still refuse to run, so each candidate is asked.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  say "needs Python 3.11 or newer, and found none as ${PYTHON:-python3.11 or python3}." \
      "Name one: make setup PYTHON=/path/to/python3.11" >&2
  return 1
}

# Install Debian packages where that is possible: with apt-get, as root or by a sudo that asks for nothing. Fails quietly
# elsewhere.
apt_install() {
  local apt=(env DEBIAN_FRONTEND=noninteractive apt-get)
  command -v apt-get >/dev/null || return 1
  if [ "$(id -u)" != 0 ]; then
    sudo -n true 2>/dev/null || return 1
    apt=(sudo -n "${apt[@]}")
  fi
  say "installing $* with apt-get"
  # Once; and one unreachable source must not stop us: install will tell.
  [ -n "${apt_updated:-}" ] || "${apt[@]}" update >/dev/null 2>&1 </dev/null || true
  apt_updated=yes
  "${apt[@]}" install -y --no-install-recommends "$@" >/dev/null 2>&1 </dev/null
}

# "3.11", as Debian names its packages.
minor_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

include_dir() { "$1" -c 'import sysconfig; print(sysconfig.get_path("include"))'; }

# Whether the Python given can build C extensions. Only trying tells: headers and libc's may be missing apart.
can_compile() {
  local cc
  cc=${CC:-$("$1" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}
  echo '#include <Python.h>' | $cc -I"$(include_dir "$1")" -fsyntax-only -x c - 2>/dev/null
}

# ---- The tools -------------------------------------------------------------------------------------------------------

make_venv() {
  local python=$1
  "$venv/bin/python" -m pip --version >/dev/null 2>&1 && return
  say "making $venv with $("$python" --version)"
  rm -rf "$venv"
  "$python" -m venv "$venv" >/dev/null 2>&1 && return

  # Debian's Python comes without ensurepip, and leaves half a .venv behind.
  rm -rf "$venv"
  apt_install "python$(minor_version "$python")-venv" && "$python" -m venv "$venv" >/dev/null && return
  rm -rf "$venv"
  mkdir -p build
  "$python" -m pip install -qq --target build/virtualenv virtualenv &&
    PYTHONPATH=build/virtualenv "$python" -m virtualenv -q "$venv" && return
  say "cannot make a virtual environment: install Python's venv module (Debian: apt-get install python3-venv)" >&2
  return 1
}

find_compiler() {
  local python=$1 packages=(gcc libc6-dev)
  [ "${PENSTOCK_COMPILE:-}" = 0 ] && return
  can_compile "$python" && return
  # Only Debian's own Python lacks its headers, and only for that one is there a package.
  [ -e "$(include_dir "$python")/Python.h" ] || packages+=("python$(minor_version "$python")-dev")
  apt_install "${packages[@]}" || true
}

find_redis_cli() {
  command -v redis-cli >/dev/null || apt_install redis-tools ||
    say "redis-cli is not here and cannot be installed, so the tests that type into it will be skipped" \
        "(Debian: apt-get install redis-tools)."
}

# In CI alone: Debian starts the server that it installs, which nobody else has asked for.
find_redis_server() {
  [ "${CI:-}" != true ] || command -v redis-server >/dev/null || apt_install redis-server ||
    say "redis-server is not here and cannot be installed, so what our clients say to one cannot be tested."
}

find_tarantool() {
  command -v tarantool >/dev/null || apt_install tarantool ||
    say "tarantool is not here and cannot be installed, so its own client will not be tried" \
        "(Debian: apt-get install tarantool)."
}

find_tmux() {
  command -v tmux >/dev/null || apt_install tmux ||
    say "tmux is not here and cannot be installed, so the test that types the README's session at a terminal will be" \
        "skipped (Debian: apt-get install tmux)."
}

find_openssl() {
  command -v openssl >/dev/null || apt_install openssl ||
    say "openssl is not here and cannot be installed, so the tests of TLS will be skipped (Debian: apt-get install openssl)."
}

find_chromium() {
  command -v chromium chromium-browser google-chrome >/dev/null || apt_install chromium ||
    say "Chromium is not here and cannot be installed, so pages will not be opened in a browser by the tests" \
        "(Debian: apt-get install chromium)."
}

# The lines of extras in pyproject.toml, with those of the extras that they name; "base" is what every install needs.
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

# Install requirements from standard input, and show which large package is being downloaded.
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
  say "this installs from the package registry into $venv, with the sizes on disk:"
  say "  about  130 MB  the packages of the server and the command line, and mypyc, which compiles the core"
  say "  about 1100 MB  Spark, Java, pyarrow, pandas and plotly (a download of 600 MB), while the core is compiled"
  find_compiler "$python"
  { requirements base server; build_requirements; } | install base
}

# What pyproject.toml names for building; the build is not isolated, so it uses these packages.
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
  # The system's programs are installed while pip is at work.
  {
    find_redis_cli
    find_redis_server
    find_tarantool
    find_tmux
    find_openssl
    find_chromium
  } &
  say "installing the packages for the tests …"
  requirements dev | install tools
  wait
}

# ---- The package -----------------------------------------------------------------------------------------------------

# Sets `core` to "compiled", or to "interpreted: why", and tells setup.py. Where we decide to compile, failing is fatal.
# The simulator is compiled only where the tools for the tests are: it takes a while, and nothing else uses it.
choose_core() {
  case ${PENSTOCK_COMPILE:-auto} in
    0) core="interpreted: PENSTOCK_COMPILE=0" ;;
    1 | all) core=compiled ;;
    *) if can_compile "$venv/bin/python"; then core=compiled; else core="interpreted: no C compiler or no Python.h"; fi ;;
  esac
  if [ "$core" != compiled ]; then
    export PENSTOCK_COMPILE=0
    say "the core runs $core. It works the same, at a tenth of the speed."
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
  # No isolation: mypy and setuptools are in .venv already.
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
