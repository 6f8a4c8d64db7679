"""Build Penstock: compile the hot packages with mypyc, or install them as plain Python from the same source.

Everything else about the package is in pyproject.toml. The environment variable PENSTOCK_COMPILE decides:

    unset  compile if a C compiler and Python.h are available; if that fails, warn and install interpreted
    0      do not compile
    1      compile, and fail if compiling fails
    all    as 1, and also compile the simulator, which only the tests use

The compiled modules are one extension per group, and a small one per module that points into it. Either all or none
are built, because they depend on each other. Editable installs are never compiled: src/ stays free of .so files, and
`PYTHONPATH=src` is always the interpreted package.
"""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# The compiled files below src/penstock: the pure, hot code; the log and the turn of a server, which are hot but not
# pure; and the simulator, which runs hundreds of thousands of machines per night.
# __init__.py files contain no code and are left out. Each group is one C file, so that the C compiler can inline across
# its modules. There are several groups, so that they compile in parallel. A group calls only groups before it.
GROUPS = {
    "core": (
        "_librt.py",
        "core/*.py",
        "core/commands/*.py",
        "core/tasks/*.py",
        "core/statistics/*.py",
        "journal/frame.py",
        "journal/layout.py",
        "journal/rows.py",
        "journal/log.py",
        "journal/room.py",
        "journal/recovery/replay.py",
        "journal/maintenance/walk.py",
        "node/clock.py",
        "node/sync_policy.py",
        "host/clock.py",
    ),
    "cluster": ("cluster/*.py",),
    "wire": (
        "wire/*.py",
        "node/caller.py",
        "node/client.py",
        "node/command_counts.py",
        "node/context.py",
        "node/dispatch.py",
        "node/ignored_options.py",
        "node/forwarded_clients.py",
        "node/forwarding.py",
        "node/inbox.py",
        "node/loading.py",
        "node/links.py",
        "node/remote.py",
        "node/tunnels.py",
        "node/turn.py",
        "dialects/disque.py",
        "dialects/native/delivery_commands.py",
        "dialects/native/follow_ups.py",
        "dialects/native/permissions.py",
        "dialects/tarantool/tube_options.py",
        "dialects/native/arguments.py",
    ),
    # The turn of a server, and the commands that run for each job.
    "server": (
        "dialects/tarantool/calls.py",
        "search/*.py",
        "dialects/native/job_commands.py",
        "dialects/native/search_reply.py",
        "dialects/native/packed_jobs.py",
        "dialects/pages.py",
        "dialects/tarantool/queue_functions.py",
        "journal/history/digester.py",
        "journal/history/gather.py",
        "server/net/connection.py",
        "server/linger.py",
        "server/loop.py",
    ),
    "rest": (
        "dialects/tarantool/call_command.py",
        "dialects/native/claim_commands.py",
        "dialects/native/global_commands.py",
        "dialects/disque_scans.py",
        "dialects/spaces/*.py",
        "dialects/native/batch_commands.py",
        "dialects/native/signal_commands.py",
        "dialects/native/stage_commands.py",
        "dialects/tarantool/queue15_functions.py",
        "dialects/native/tube_commands.py",
        "dialects/native/tube_summaries.py",
        "dialects/xqueue/statuses.py",
        "dialects/xqueue/arguments.py",
        "dialects/xqueue/calls.py",
        "dialects/xqueue/formats.py",
        "dialects/xqueue/rows.py",
        "dialects/xqueue/space.py",
        "dialects/xqueue/spaces.py",
        "dialects/xqueue/tasks.py",
        "dialects/xqueue/updates.py",
    ),
    # Half of the time of a simulation is spent outside the nodes.
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
# The groups that every job passes through are compiled with -O2, the others with -O1. -O1 takes two thirds of the build
# time and is up to a tenth slower. -O3 produces more code and is not faster.
HOT = ("core", "wire", "server")

# mypyc drops the docstrings of classes, and the docstring of an error is its message.
NOT_COMPILED = ("__init__.py", "errors.py", "routing.py")

C_FLAGS = (
    # Other groups call a group through a function table, so calls within it can be inlined. By default the compiler
    # must assume that another library may replace each function.
    *("-fvisibility=hidden", "-fno-semantic-interposition"),
    # Python's flags contain -Wall. Its check of the indentation reads the generated file repeatedly, which takes a
    # quarter of the build.
    "-Wno-all",
)

MODE = os.environ.get("PENSTOCK_COMPILE", "auto")
MUST_COMPILE = MODE in ("1", "all")
# The simulator is compiled only on request. `penstock sim` also works interpreted.
COMPILED = [name for name in GROUPS if name != "sim" or MODE == "all"]


def sources(patterns: tuple[str, ...]) -> list[str]:
    """Return the files of a group in a fixed order, so that the same source gives the same C."""
    found = [path for pattern in patterns for path in Path("src/penstock").glob(pattern)]
    return sorted(str(path) for path in found if path.name not in NOT_COMPILED)


def can_compile() -> bool:
    """Return whether a C compiler and Python's headers are available."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def warn_interpreted(reason: str) -> None:
    print(f"penstock: {reason}; installing the interpreted package, which is about ten times slower", file=sys.stderr)


def compiled_groups() -> list[Extension]:
    """Return the extensions of the compiled groups."""
    from mypyc.build import mypycify

    # Do not use the cache of an earlier build, because cached modules may not match changed ones.
    os.environ["MYPY_CACHE_DIR"] = os.devnull
    groups = [(sources(GROUPS[name]), f"penstock_{name}") for name in COMPILED]
    files = [file for group, _ in groups for file in group]
    # Groups disable mypyc's global optimizations. These treat an isinstance as False if the subclass is in a later
    # module.
    # The compiled modules import others lazily, and these import packages of extras, which may be missing. `make lint`
    # checks them, so their errors are of no interest here.
    made = mypycify(["--follow-imports=silent", *files], opt_level="1", debug_level="0", separate=groups)
    if sys.platform != "win32":
        hot = [f"penstock_{name}__mypyc" for name in HOT]
        for extension in made:
            level = ["-O2"] if extension.name in hot else []
            extension.extra_compile_args = [*extension.extra_compile_args, *C_FLAGS, *level]
    return made


def extensions() -> list[Extension]:
    """Return the extensions to build: all or none. Only for builds, because type checking takes seconds."""
    if MODE == "0" or not {"bdist_wheel", "build", "build_ext", "install"} & set(sys.argv):
        return []
    if not MUST_COMPILE and not can_compile():
        warn_interpreted("no C compiler or no Python.h")
        return []
    try:
        return compiled_groups()
    except (ImportError, SystemExit) as failure:  # mypyc exits with sys.exit.
        if MUST_COMPILE:
            raise
        warn_interpreted(f"mypyc failed ({failure})")
        return []


class BuildPy(build_py):
    """Remove files of earlier builds, which must not reach the wheel."""

    def run(self) -> None:
        # Keep compiled modules that are still needed. They are rebuilt if their C source has changed.
        keep = set(self.get_finalized_command("build_ext").get_outputs())
        for left in Path(self.build_lib).rglob("*"):
            if left.is_file() and str(left) not in keep:
                left.unlink()
        super().run()


class BuildExt(build_ext):
    """Build all extensions. If one fails and compiling is optional, build none."""

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
