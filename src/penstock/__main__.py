"""The `penstock` command, as a console script and as `python -m penstock`.

The base install has no command line. The command then prints the name of the extra that installs it.

Ctrl-C prints no traceback. While the command runs, `penstock.cli.errors` handles the signal. Before and after that, the
signal has its default action, which ends the process.
"""

import signal
import sys

from penstock._extras import extra_of, not_installed

# The exit code of a failure. It is repeated here, because penstock/cli/errors.py needs the extra.
_ERROR = 1


def main() -> None:
    """Run the command line."""
    # If the shell started the command with SIGINT ignored, it stays ignored.
    is_heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heeded:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        _run()
    finally:
        if is_heeded:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _run() -> None:
    try:
        from penstock.cli.main import main as run
    except ModuleNotFoundError as error:
        if extra_of(error.name) != "cli":
            raise
        extra = "server" if sys.argv[1:2] == ["serve"] else "cli"
        print(f"penstock: the command line needs a package: {not_installed(error.name, extra)}", file=sys.stderr)
        sys.exit(_ERROR)
    run()


if __name__ == "__main__":
    main()
