"""The metrics of the process and of Python's garbage collector, with the names that prometheus_client uses."""

from __future__ import annotations

import gc
import os
import platform
import resource

from penstock._build import is_compiled
from penstock._version import __version__
from penstock.server.metrics.page import Page, label_text


def add_process(page: Page) -> None:
    """Add all metrics of the process. Those of /proc are left out on systems without it."""
    build = (__version__, platform.python_version(), "yes" if is_compiled() else "no")
    page.add("penstock_build_info", 1, label_text(("version", "python", "compiled"), build))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    page.add("process_cpu_seconds_total", round(usage.ru_utime + usage.ru_stime, 6))
    page.add("process_max_fds", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        _add_proc(page)
    except OSError:
        pass
    for generation, counts in enumerate(gc.get_stats()):
        labels = f'generation="{generation}"'
        page.add("python_gc_collections_total", counts["collections"], labels)
        page.add("python_gc_objects_collected_total", counts["collected"], labels)
        page.add("python_gc_objects_uncollectable_total", counts["uncollectable"], labels)


def _add_proc(page: Page) -> None:
    with open("/proc/self/stat", "rb") as file:
        # The name of the program is in parentheses and can have any characters. Field 3 of proc(5) follows it.
        fields = file.read().rpartition(b")")[2].split()
    with open("/proc/stat", "rb") as file:
        booted = next(float(line.split()[1]) for line in file if line.startswith(b"btime "))
    page.add("process_virtual_memory_bytes", int(fields[20]))
    page.add("process_resident_memory_bytes", int(fields[21]) * resource.getpagesize())
    page.add("process_start_time_seconds", booted + int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    page.add("process_open_fds", len(os.listdir("/proc/self/fd")))
