"""Instructions per command: a guard against changes that make commands more expensive.

Times depend on the load of the machine. The number of instructions hardly does: runs differ by 0.2 %, and by up to
0.6 % on a very busy machine. So it shows changes that no benchmark shows. Cache misses, system calls and waiting are
not included.

The figures depend on the build of Python, on the C compiler and on libc. So `figures.json` has a record for each of
these combinations on which they were measured, and a check compares only equal ones. Ratios to PING are not checked
instead, because a change of PING itself, which is in every command, would stay hidden.
"""
