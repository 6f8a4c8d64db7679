"""All limits of the engine with their units and reasons, and the checks that enforce them.

Compiled integers have 64 bits and overflow, Python's do not. Therefore no number enters the engine unchecked. The
checks accept Python integers of any size. Values that pass fit into 64 bits, and so does the sum of two of them.
"""

from __future__ import annotations

import math
from typing import Final

from penstock.core.errors import BadName, BodyTooLarge, OutOfRange, WrongType

# A time that is never reached. It is far beyond all deadlines that can be set, yet small enough that adding a duration
# to it by mistake does not overflow a 64-bit integer. It is below 2**62, because mypyc stores greater Python integers
# on the heap, which would cost an allocation per put.
NEVER: Final = 1 << 61

# "Not given": the default of the tube applies. Valid durations are not negative.
UNSET: Final = -1

# The longest finite duration, about 1,000 years. Unlimited durations have their own value, NEVER. A value between the
# two is probably an error in units, so it is refused.
DURATION_MS_MAX: Final = 1_000 * 366 * 86_400_000

# Priorities are exact in JSON, in Lua and in a Spark double, which have 53 bits and a sign.
PRIORITY_MAX: Final = (1 << 53) - 1

# Integer ids of jobs are exact in JSON and in Lua.
NUMBER_MAX: Final = 1 << 53

# "Not given" for a priority. All valid priorities are smaller.
PRIORITY_UNSET: Final = 1 << 60

# The priorities of urgent and of requeued jobs: before and behind all priorities that users can set.
PRIORITY_FRONT: Final = -(1 << 60)
PRIORITY_BACK: Final = (1 << 60) - 1

# Tube names and keys are bytes, and their length is stored in two bytes. Disque allows longer names, which are not used
# in practice.
NAME_BYTES_MAX: Final = 65_535

# The default limit of a job's body. Disque's limit is 512 MiB, but a body of that size blocks all other clients while
# it is moved through memory.
BODY_BYTES_MAX: Final = 64 * 1024 * 1024

# The highest limit that can be set for bodies. A larger body would not fit in a frame of the log.
BODY_BYTES_HARD_MAX: Final = 512 * 1024 * 1024

# The reason of a bury is a sentence for people. It is kept with the job and in its history.
REASON_BYTES_MAX: Final = 4_096

# Headers are a few short values, such as a trace context. They are in memory while the job exists, also if its body is
# on disk only, so large data belongs in the body.
HEADERS_MAX: Final = 64
HEADER_BYTES_MAX: Final = 8 * 1024

# The default time for which the result of a job is kept.
RESULT_TTL_MS: Final = 86_400_000

# "Until the job's own ttl ends", as the ttl of a result. Valid durations are not negative.
JOB_TTL: Final = -2

# The number of jobs that one command can put, take or name. More would delay all other clients.
BATCH_JOBS_MAX: Final = 100_000

# The number of jobs that one command can put after it has settled a job. All of them are checked and put in one turn.
FOLLOW_UPS_MAX: Final = 1_000

# The bytes of bodies, keys and names that one command can put, because all of them have to fit in one frame of the log.
BATCH_BYTES_MAX: Final = 768 * 1024 * 1024

# The bytes of the log after which a turn leaves the rest of its work to the next turn. A turn and a whole batch of puts
# fit in one frame.
TURN_BYTES_MAX: Final = 32 * 1024 * 1024

# The bytes of the log that a put needs in addition to its body: its row, key and other fields.
ROW_ROOM_BYTES: Final = 512

# The memory of a job without its body and name, including everything that refers to it. The estimate is high, so that a
# memory limit also holds for jobs with reasons. It includes a body that is too short to be moved to disk.
JOB_MEMORY_BYTES: Final = 400

# The memory of a note, which is a value that a node of a cluster stores, without its key and value. It includes the
# object that the note describes.
NOTE_MEMORY_BYTES: Final = 300

# The memory of a tube without its name and jobs: its counters, containers and lists of waiting calls. The estimate
# is high. A tube takes fewer bytes than this in the log.
TUBE_MEMORY_BYTES: Final = 4_096

# The memory of a consumer of claims without its name, and the most that it takes in the log. A consumer is never
# removed, because its stream can resume at any time and needs its progress.
CONSUMER_MEMORY_BYTES: Final = 600

# The data that a dialect can store with a tube, for example the format of a space. It is in memory and in the log.
NOTES_CHARS_MAX: Final = 65_536

# The number of formats that a space of rows can have over time. A job stores the number of its format in one byte.
ROW_FORMATS_MAX: Final = 255

# The memory of a dedup id without its own length. It is used until the id leaves the window, even if its job has ended.
DEDUP_MEMORY_BYTES: Final = 250

# The lowest memory limit that can be set. A queue with less is not useful.
MEMORY_BYTES_MIN: Final = 1024 * 1024

# The number of tubes that one take can wait on. Each needs an entry in the tube's list of waiting calls.
WAIT_TUBES_MAX: Final = 1_024

# The number of takes that can wait on one connection at the same time.
WAITS_PER_CONNECTION_MAX: Final = 1_024

# The initial number of failures of an imported job. Failures are counted in 32 bits, so later ones can still be added.
NACKS_MAX: Final = 1_000_000

# By default, a tube keeps this many dedup ids, and keeps each of them for this time. 100,000 ids take about 20 MB.
DEDUP_COUNT: Final = 100_000
DEDUP_MS: Final = 600_000

# The number of open claims per consumer. The jobs of an open claim are not available to others.
CLAIMS_OPEN_MAX: Final = 64

# The default time after which a stage is discarded if there is no further put and it is not published. Batch jobs that
# take longer than a day set a longer time.
STAGE_EXPIRE_MS: Final = 86_400_000

# The names of published and discarded stages are kept for this time, and at most this many, so that a repeated request
# gets the same answer. 100,000 names take about 30 MB.
STAGE_REMEMBERED_MS: Final = 86_400_000
STAGES_REMEMBERED: Final = 100_000

# The default time after the last put into a batch after which its callbacks are discarded if it has not ended.
BATCH_EXPIRE_MS: Final = 7 * 86_400_000

# The memory of a batch without its name, and the most that it takes in the log.
STAGE_MEMORY_BYTES: Final = 1_000

# The number of stages that one command can publish or discard, because the command is one row of the log and one turn.
STAGES_PER_COMMAND_MAX: Final = 10_000

# The number of deadlines that fire in one turn, which takes about one millisecond in compiled code. The rest fire in
# the next turns, so that a million jobs that are due at the same time do not block other clients.
FIRED_PER_TURN_MAX: Final = 1_024

# The time after which a deadline that found no room on a full disk is tried again.
NO_ROOM_MS: Final = 1_000

# The number of jobs that a scan examines for one page of results, so that a filter that matches nothing cannot block
# other clients.
SCAN_EXAMINED_MAX: Final = 10_000

# Integer ids of a tube are reserved in blocks: the log stores the end of the block, and after a crash the tube
# continues from there. The next block is reserved while the present one is used, so that no put waits for the disk. A
# tube that uses up a block within a second gets larger blocks.
LOCAL_IDS_BLOCK: Final = 1_024
LOCAL_IDS_BLOCK_MAX: Final = 65_536


def check_integer(value: int, what: str) -> None:
    """Raise WrongType if the value is not an integer. The compiled build raises TypeError before this call."""
    if not isinstance(value, int):
        raise WrongType(f"{what} must be a whole number, not {type(value).__name__}")


def check_duration(value: int, what: str) -> int:
    """Return a duration in ms if it is 0 to DURATION_MS_MAX, or NEVER. Raise OutOfRange otherwise."""
    check_integer(value, what)
    if value < 0 or (value > DURATION_MS_MAX and value != NEVER):
        raise OutOfRange(f"{what} must be 0 to {DURATION_MS_MAX // 1000} seconds, or none for no limit")
    return value


def check_finite(value: int, what: str) -> int:
    """Return a duration in ms. Raise OutOfRange if it is NEVER or too long.

    A job with an endless delay, for example, would never be delivered.
    """
    check_integer(value, what)
    if value < 0 or value > DURATION_MS_MAX:
        raise OutOfRange(f"{what} must be 0 to {DURATION_MS_MAX // 1000} seconds")
    return value


def check_priority(value: int) -> int:
    """Return the priority if it is valid. Raise OutOfRange otherwise. Jobs with lower values are taken first."""
    check_integer(value, "a priority")
    if value < -PRIORITY_MAX or value > PRIORITY_MAX:
        raise OutOfRange(f"a priority must be between -{PRIORITY_MAX} and {PRIORITY_MAX}; lower is served first")
    return value


def check_nacks(value: int) -> int:
    """Return the number of failures of an imported job if it is valid. Raise OutOfRange otherwise."""
    check_integer(value, "nacks")
    if value < 0 or value > NACKS_MAX:
        raise OutOfRange(f"nacks must be 0 to {NACKS_MAX}")
    return value


def check_number(value: int) -> int:
    """Return the integer id of a job if it is valid. Raise OutOfRange otherwise."""
    check_integer(value, "a number")
    if value < 0 or value > NUMBER_MAX:
        raise OutOfRange(f"a number must be 0 to {NUMBER_MAX}")
    return value


def check_count(value: int, what: str) -> int:
    """Return the number of jobs if it is 1 to BATCH_JOBS_MAX. Raise OutOfRange otherwise."""
    check_integer(value, what)
    if value < 1 or value > BATCH_JOBS_MAX:
        raise OutOfRange(f"{what} must be 1 to {BATCH_JOBS_MAX}")
    return value


def check_name(name: bytes, what: str) -> bytes:
    """Return the name if it is valid: any 1 to 65,535 bytes. Raise BadName otherwise."""
    if len(name) < 1 or len(name) > NAME_BYTES_MAX:
        raise BadName(f"{what} must have 1 to {NAME_BYTES_MAX} bytes, this one has {len(name)}")
    return name


def check_body(length: int, maximum: int) -> None:
    """Raise BodyTooLarge if the body is longer than `maximum`."""
    if length > maximum:
        raise BodyTooLarge(f"the body has {length} bytes, and this queue allows {maximum} (max_body)")


def duration_ms(seconds: object, what: str) -> int:
    """Convert seconds, as people and clients give them, to milliseconds. None and infinity mean NEVER.

    The result is rounded up, because a delay must never end early. The small amount that is subtracted first removes
    the error of binary fractions, so that 0.07 s is 70 ms and not 71.
    """
    if seconds is None:
        return NEVER
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise WrongType(f"{what} must be a number of seconds, not {type(seconds).__name__}")
    if isinstance(seconds, int):
        return check_duration(seconds * 1000, what)
    if math.isnan(seconds):
        raise OutOfRange(f"{what} must be a number of seconds, not NaN")
    if math.isinf(seconds) and seconds > 0:
        return NEVER
    if seconds < 0 or seconds * 1000 > DURATION_MS_MAX:
        raise OutOfRange(f"{what} must be 0 to {DURATION_MS_MAX // 1000} seconds, or none for no limit")
    return math.ceil(seconds * 1000 - 1e-6)
