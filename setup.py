"""Compile the hot packages with mypyc, or install them as plain Python: the same source either way.

Everything else about the package is in pyproject.toml. The environment variable PENSTOCK_COMPILE decides:

    unset  compile if there is a C compiler and Python.h; if that fails, warn and install interpreted
    0      do not compile
    1      compile, and fail if that fails
    all    the same, and compile the simulator, too, which only the tests of Penstock itself use

The compiled modules are an extension for each group and a small one for each module that points into it. They are
useless without each other, so it is all or none of them. Editable installs are never compiled: src/ stays free of .so
files, and `PYTHONPATH=src` is always the interpreted package.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# What is compiled, below src/penstock: the pure, hot code; the log and the turns of a server, which are not pure, but
# hot; and simulated machines, of which a night has hundreds of thousands.
# __init__.py files hold no code and stay out. Each group is one C file, so that the C compiler can inline across its
# modules; several, because a compiler works on one file at a time. A group calls those before it, never those behind.
GROUPS = {
    "core": (
        "_librt.py",
        "core/*.py",
        "journal/frame.py",
        "journal/log.py",
        "journal/room.py",
        "journal/replay.py",
        "journal/walk.py",
        "host/ledger.py",
    ),
    "cluster": ("cluster/*.py",),
    "wire": (
        "wire/*.py",
        "dialects/command.py",
        "dialects/disque.py",
        "dialects/inbox.py",
        "dialects/native.py",
        "dialects/site.py",
        "dialects/tarantool_options.py",
        "dialects/words.py",
    ),
    # The turn of a server, and the commands that clients call for each job.
    "server": (
        "dialects/calls.py",
        "dialects/jobs.py",
        "dialects/packed.py",
        "dialects/pages.py",
        "dialects/tarantool.py",
        "journal/gather.py",
        "server/connection.py",
        "server/linger.py",
        "server/node.py",
        "server/post.py",
    ),
    "rest": (
        "dialects/call_command.py",
        "dialects/claims.py",
        "dialects/everywhere.py",
        "dialects/scans.py",
        "dialects/spaces/*.py",
        "dialects/stages.py",
        "dialects/tarantool15.py",
        "dialects/tubes.py",
        "dialects/xqueue.py",
        "dialects/xqueue_arguments.py",
        "dialects/xqueue_calls.py",
        "dialects/xqueue_rows.py",
        "dialects/xqueue_space.py",
        "dialects/xqueue_spaces.py",
        "dialects/xqueue_tasks.py",
        "dialects/xqueue_updates.py",
    ),
    # Half of what a simulation does is not in the nodes, but around them.
    "sim": (
        "testing/sim/clients.py",
        "testing/sim/clocks.py",
        "testing/sim/disk.py",
        "testing/sim/links.py",
        "testing/sim/network.py",
        "testing/sim/node.py",
        "testing/sim/schedule.py",
    ),
}
# The groups that every job passes through are compiled with -O2. The others, with -O1, take two thirds of the time to
# build and run up to a tenth slower. (More than -O2 makes more code, which has to be fetched, and nothing faster.)
HOT = ("core", "wire", "server")

# mypyc drops the docstrings of classes, and the docstring of an error is its message.
NOT_COMPILED = ("__init__.py", "errors.py")

C_FLAGS = (
    # A group is called from outside through a table that it hands out, so calls within it can be inlined. By default
    # the compiler has to assume that another library may replace each function.
    *("-fvisibility=hidden", "-fno-semantic-interposition"),
    # Python's own flags have -Wall. Its check of the indentation reads the generated file again and again, which takes
    # a quarter of the whole build.
    "-Wno-all",
)

MODE = os.environ.get("PENSTOCK_COMPILE", "auto")
MUST_COMPILE = MODE in ("1", "all")
# The simulator's group is compiled only if it is asked for; `penstock sim` works interpreted, too.
COMPILED = [name for name in GROUPS if name != "sim" or MODE == "all"]


def sources(patterns: tuple[str, ...]) -> list[str]:
    """The files of a group, in a fixed order, so that the same source gives the same C."""
    found = [path for pattern in patterns for path in Path("src/penstock").glob(pattern)]
    return sorted(str(path) for path in found if path.name not in NOT_COMPILED)


def can_compile() -> bool:
    """Whether a C compiler and Python's headers are there."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def warn_interpreted(reason: str) -> None:
    print(f"penstock: {reason}; installing the interpreted package, at a tenth of the speed", file=sys.stderr)


def compiled_groups() -> list[Extension]:
    """The extensions of the groups that are compiled."""
    from mypyc.build import mypycify

    # Nothing of an earlier build is used: what was kept of one module may not fit what another has become.
    os.environ["MYPY_CACHE_DIR"] = os.devnull
    groups = [(sources(GROUPS[name]), f"penstock_{name}") for name in COMPILED]
    files = [file for group, _ in groups for file in group]
    # Groups do without what mypyc calls global optimizations, and must: those take an isinstance for False where the
    # subclass is in a later module.
    made = mypycify(files, opt_level="1", debug_level="0", separate=groups)
    if sys.platform != "win32":
        hot = [f"penstock_{name}__mypyc" for name in HOT]
        for extension in made:
            level = ["-O2"] if extension.name in hot else []
            extension.extra_compile_args = [*extension.extra_compile_args, *C_FLAGS, *level]
    return made


def extensions() -> list[Extension]:
    """What to build: all compiled modules, or none. Type checking takes seconds, so only when something is built."""
    if MODE == "0" or not {"bdist_wheel", "build", "build_ext", "install"} & set(sys.argv):
        return []
    if not MUST_COMPILE and not can_compile():
        warn_interpreted("no C compiler or no Python.h")
        return []
    try:
        return compiled_groups()
    except (ImportError, SystemExit) as failure:  # mypyc leaves by sys.exit.
        if MUST_COMPILE:
            raise
        warn_interpreted(f"mypyc failed ({failure})")
        return []


class BuildPy(build_py):
    """Start from a clean tree: what an earlier build left there must not reach the wheel."""

    def run(self) -> None:
        # Compiled modules that are still wanted stay: they are rebuilt when their C source changed.
        keep = set(self.get_finalized_command("build_ext").get_outputs())
        for left in Path(self.build_lib).rglob("*"):
            if left.is_file() and str(left) not in keep:
                left.unlink()
        super().run()


class BuildExt(build_ext):
    """Build all extensions or, when one fails and nobody insists, none."""

    def run(self) -> None:
        self.parallel = True
        try:
            super().run()
        except Exception as failure:
            if MUST_COMPILE:
                raise
            for made in self.get_outputs():
                Path(made).unlink(missing_ok=True)
            warn_interpreted(f"the C compiler failed ({failure})")


setup(ext_modules=extensions(), cmdclass={"build_py": BuildPy, "build_ext": BuildExt})
