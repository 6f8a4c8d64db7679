"""What every test run shares: which penstock is under test, how hard Hypothesis tries, what a test may do without."""

import gc
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.simulation.planted_bugs import install_from_environment

# Before anything else of the package is imported: a planted bug, if one is named.
install_from_environment()

import penstock  # noqa: E402
from penstock._build import is_compiled  # noqa: E402

# Who runs tests in the background may have Ctrl-C ignored, and every process that they start would ignore it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def in_ci() -> bool:
    return os.environ.get("CI") == "true"


# deadline: the same test runs compiled and interpreted, ten times apart, so a time limit an example says nothing.
# derandomize: a gate must say the same of the same code twice, so CI looks at the same examples every time; every other
# run looks somewhere new, and print_blob gives the line that replays what it finds.
# ci: both builds run beside each other; the compiled one, which is what users get, tries more.
for name, examples in [("dev", 100), ("ci", 70 if is_compiled() else 30), ("deep", 10_000)]:
    settings.register_profile(name, max_examples=examples, deadline=None, derandomize=name == "ci", print_blob=True)
settings.load_profile(os.environ.get("PENSTOCK_HYPOTHESIS") or ("ci" if in_ci() else "dev"))

UNDER_TEST = "compiled" if is_compiled() else "interpreted"
PACKAGE_DIR = Path(penstock.__file__).parent


def pytest_configure() -> None:
    """Refuse to test the other build: a compiled run that quietly tests the source proves nothing."""
    expected = os.environ.get("PENSTOCK_EXPECT", UNDER_TEST)
    if expected != UNDER_TEST:
        raise pytest.UsageError(f"PENSTOCK_EXPECT={expected}, but penstock is {UNDER_TEST} from {PACKAGE_DIR}")


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exclude the collected tests from later garbage collections, which would otherwise visit millions of objects."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    return f"penstock under test: {UNDER_TEST} from {PACKAGE_DIR}"


@pytest.fixture(scope="session")
def compiled() -> bool:
    """Whether the penstock under test is the compiled one."""
    return UNDER_TEST == "compiled"


@pytest.fixture(scope="session")
def needs() -> Callable[[object, str], None]:
    """`needs(shutil.which("git"), "git is not installed")`: go on if it is there, else skip. In CI it must be there."""

    def check(present: object, reason: str) -> None:
        if present:
            return
        if in_ci():
            pytest.fail(f"CI must have what a test needs: {reason}")
        pytest.skip(reason)

    return check


@pytest.fixture
def small_disk(tmp_path: Path, needs: Callable[[object, str], None]) -> Iterator[Path]:
    """A file system of 24 MB, which a test can fill."""
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(mount)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    needs(mounted, "mounting a small file system takes root and the right to mount")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write what commands print now to tests/cli/golden")
