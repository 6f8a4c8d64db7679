"""Every limit of the engine: its unit, its reason, and the checks that keep numbers inside it.

Compiled integers have 64 bits and wrap; Python's do not. So no number enters the engine unchecked: the checks here
take Python integers of any size, and what they let through fits, with room to add two of them.
"""

from __future__ import annotations

import math
from typing import Final

from penstock.core.errors import BadName, BodyTooLarge, OutOfRange, WrongType

# A moment that never comes. Far beyond every deadline that can be set, yet small enough that adding a duration to it
# by mistake does not wrap a 64-bit integer. Below 2**62, where mypyc keeps a Python int in a register: one bit more and
# every put allocated numbers for it.
NEVER: Final = 1 << 61

# "The caller said nothing": a default of the tube applies. No valid duration is negative.
UNSET: Final = -1

# The longest finite duration, about 1,000 years. "For ever" has its own value, NEVER; anything between the two is a
# mistake in units, and refusing it is kinder than rounding it.
DURATION_MS_MAX: Final = 1_000 * 366 * 86_400_000

# Priorities are exact in JSON, in Lua and in a Spark double: 53 bits and a sign.
PRIORITY_MAX: Final = (1 << 53) - 1

# Integers of jobs within their tubes are exact in JSON and in Lua.
NUMBER_MAX: Final = 1 << 53

# "The caller said nothing" for a priority, where every smaller integer is a valid one.
PRIORITY_UNSET: Final = 1 << 60

# Where urgent and requeue put a job: before and behind every priority that can be given.
PRIORITY_FRONT: Final = -(1 << 60)
PRIORITY_BACK: Final = (1 << 60) - 1

# Tube names and keys are bytes. 65,535 is what a two-byte length can say; Disque allows more, but nobody types it.
NAME_BYTES_MAX: Final = 65_535

# A job's body, unless the owner of the engine sets another limit. Disque's own bound is 512 MiB; a queue that moves
# such bodies through memory serves nobody else meanwhile.
BODY_BYTES_MAX: Final = 64 * 1024 * 1024

# No limit on bodies can be set higher: one more byte would not fit in a frame of the log.
BODY_BYTES_HARD_MAX: Final = 512 * 1024 * 1024

# Why a job was buried: a sentence for people, kept with the job and in its history.
REASON_BYTES_MAX: Final = 4_096

# How long the result of a job is kept, unless whoever finishes the job says otherwise.
RESULT_TTL_MS: Final = 86_400_000

# "As long as the job's own ttl", where the time of a result is asked for. No valid duration is negative.
JOB_TTL: Final = -2

# How many jobs one command may put, take or name. Above this a command would hold everybody else up.
BATCH_JOBS_MAX: Final = 100_000

# How many bytes of bodies, keys and names one command may put. It is one frame of the log, and has to fit in one.
BATCH_BYTES_MAX: Final = 768 * 1024 * 1024

# After how many bytes of the log a turn leaves the rest to the next: with a batch that is put it still fits in a frame.
TURN_BYTES_MAX: Final = 32 * 1024 * 1024

# What a put takes of the log beside its body: its row, its key and the like.
ROW_ROOM_BYTES: Final = 512

# What a job takes of memory beside its body, its name and the like, with everything that refers to it; a bit much, so
# that a limit on memory holds also for jobs with reasons. A body that is too short to be left on disk is in it.
JOB_MEMORY_BYTES: Final = 400

# What a note takes of memory beside its key and its value, with whatever it is a note of.
NOTE_MEMORY_BYTES: Final = 300

# What a tube takes of memory beside its name and its jobs: its counters, containers and lines; a bit much, too. Of the
# log it takes less.
TUBE_MEMORY_BYTES: Final = 4_096

# What a consumer of claims takes of memory beside its name, and at most in the log. It is never forgotten: the stream
# that it reads for may come back whenever it likes, and has to find how far it was.
CONSUMER_MEMORY_BYTES: Final = 600

# What a vocabulary may note of a tube: the format of a space, say. It is in memory, and in the log where the tube is.
NOTES_CHARS_MAX: Final = 65_536

# What a dedup id takes of memory beside its own length, for as long as it is remembered: its job may be gone by then.
DEDUP_MEMORY_BYTES: Final = 250

# No limit on memory can be set lower: less is not worth a queue.
MEMORY_BYTES_MIN: Final = 1024 * 1024

# How many tubes one waiting take may watch; each costs a link that is made and unmade.
WAIT_TUBES_MAX: Final = 1_024

# How many takes one connection may keep waiting at a time.
WAITS_PER_CONNECTION_MAX: Final = 1_024

# How often a job that comes from elsewhere may have failed there: it goes on counting in 32 bits.
NACKS_MAX: Final = 1_000_000

# How many puts of a tube are remembered by their dedup ids, and for how long, unless its policy says otherwise. A
# hundred thousand cost about 20 MB while they are full.
DEDUP_COUNT: Final = 100_000
DEDUP_MS: Final = 600_000

# How many claims a consumer may have open; each holds its jobs back from everybody else.
CLAIMS_OPEN_MAX: Final = 64

# How long a stage waits for another put, or to be published, unless it is said; then it is discarded. A batch job that
# takes longer than a day says so.
STAGE_EXPIRE_MS: Final = 86_400_000

# For how long, and of how many stages that were published or discarded the names are remembered, so that whoever asks
# again is told the same. A hundred thousand cost about 30 MB.
STAGE_REMEMBERED_MS: Final = 86_400_000
STAGES_REMEMBERED: Final = 100_000

# How many stages one command may publish or discard: it is one row of the log, and one turn.
STAGES_PER_COMMAND_MAX: Final = 10_000

# How many deadlines fire in one turn: about a millisecond's work, compiled. The rest fire in the next turns, so that
# a million jobs that fall due at once are a slope and not a wall.
FIRED_PER_TURN_MAX: Final = 1_024

# How long a deadline waits for room on a full disk before it is looked at again.
NO_ROOM_MS: Final = 1_000

# How many jobs a scan looks at for one page of results, so that a filter which matches nothing cannot stall others.
SCAN_EXAMINED_MAX: Final = 10_000

# A tube's integers are reserved in blocks: the log says "up to here", and after a crash the tube goes on from there.
# One block is reserved while the one before it is given out, so that nobody waits for the disk. A tube that uses up a
# block within a second gets larger ones.
LOCAL_IDS_BLOCK: Final = 1_024
LOCAL_IDS_BLOCK_MAX: Final = 65_536


def check_integer(value: int, what: str) -> None:
    """Refuse what is no whole number. Compiled code cannot even be given such a thing."""
    if not isinstance(value, int):
        raise WrongType(f"{what} must be a whole number, not {type(value).__name__}")


def check_duration(value: int, what: str) -> int:
    """Let a duration in milliseconds through: 0 to DURATION_MS_MAX, or NEVER."""
    check_integer(value, what)
    if value < 0 or (value > DURATION_MS_MAX and value != NEVER):
        raise OutOfRange(f"{what} must be 0 to {DURATION_MS_MAX // 1000} seconds, or none for ever")
    return value


def check_finite(value: int, what: str) -> int:
    """Let a duration through that has to end: a delay for ever would be a job that nobody ever gets."""
    check_integer(value, what)
    if value < 0 or value > DURATION_MS_MAX:
        raise OutOfRange(f"{what} must be 0 to {DURATION_MS_MAX // 1000} seconds")
    return value


def check_priority(value: int) -> int:
    """Let a priority through: lower is served first."""
    check_integer(value, "a priority")
    if value < -PRIORITY_MAX or value > PRIORITY_MAX:
        raise OutOfRange(f"a priority must be between -{PRIORITY_MAX} and {PRIORITY_MAX}; lower is served first")
    return value


def check_nacks(value: int) -> int:
    """Let a count of failures through, of a job that comes from elsewhere."""
    check_integer(value, "nacks")
    if value < 0 or value > NACKS_MAX:
        raise OutOfRange(f"nacks must be 0 to {NACKS_MAX}")
    return value


def check_number(value: int) -> int:
    """Let the integer of a job within its tube through."""
    check_integer(value, "a number")
    if value < 0 or value > NUMBER_MAX:
        raise OutOfRange(f"a number must be 0 to {NUMBER_MAX}")
    return value


def check_count(value: int, what: str) -> int:
    """Let a count of jobs through: at least one, at most a batch."""
    check_integer(value, what)
    if value < 1 or value > BATCH_JOBS_MAX:
        raise OutOfRange(f"{what} must be 1 to {BATCH_JOBS_MAX}")
    return value


def check_name(name: bytes, what: str) -> bytes:
    """Let the name of a tube through: any 1 to 65,535 bytes."""
    if len(name) < 1 or len(name) > NAME_BYTES_MAX:
        raise BadName(f"{what} must have 1 to {NAME_BYTES_MAX} bytes, this one has {len(name)}")
    return name


def check_body(length: int, maximum: int) -> None:
    """Refuse a body that is larger than this queue allows."""
    if length > maximum:
        raise BodyTooLarge(f"the body has {length} bytes, and this queue allows {maximum} (max_body)")


def duration_ms(seconds: object, what: str) -> int:
    """Turn seconds as people and clients give them into milliseconds; None and infinity mean for ever.

    Rounded up, because a delay must never end early; the subtrahend undoes the noise of binary fractions, so that
    0.07 s is 70 ms and not 71.
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
        raise OutOfRange(f"{what} must be 0 to {DURATION_MS_MAX // 1000} seconds, or none for ever")
    return math.ceil(seconds * 1000 - 1e-6)
