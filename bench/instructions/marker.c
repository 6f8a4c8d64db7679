/* Requests to callgrind from the process that it measures. Outside of valgrind they do nothing. */
#include <valgrind/callgrind.h>

void start(void) { CALLGRIND_START_INSTRUMENTATION; }

/* Write the counts since the previous dump to a file, and count from zero again. */
void dump(void) { CALLGRIND_DUMP_STATS; }
