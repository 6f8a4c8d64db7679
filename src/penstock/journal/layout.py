"""The binary layout of the log: frames, rows, var fields and their numbers. No other module knows an offset.

A *row* is the complete state of a job after a change. Recovery is therefore "the last row wins" and runs no rule of the
engine. A *frame* is one commit: either all of its rows exist, or none. All integers are little-endian.
docs/explanation/journal.md describes this layout for authors of readers.

Frame header, 64 bytes:

     0  magic u32 "PENF"
     4  crc32 u32: of bytes 8 to length, with a seed that depends on file and offset
     8  version u8 │  9 kind u8 (1: log, 2: snapshot, 3: end of snapshot) │ 10  flags u16
    12  length u32: of the whole frame, a multiple of 8
    16  position u64: of the first row; rows are numbered from 1 in the life of a log.
        In a snapshot: position of the log at which this state was read; later rows of the log are newer
    24  engine time i64 │ 32  wall time i64, both ms since 1970
    40  rows u32 │ 44  bytes a row u16 │ 46  0
    48  var bytes u32 │ 52  0
    56  durable u64: every position below it was on disk when this frame was written

then the rows, then the var bytes, then zeros up to the length.

Row, 144 bytes:

     0  job id i64 (epoch 20 bits, sequence 43), or the number of a tube or session
     8  order i64 │ 16  wake i64 │ 24  expiry i64 │ 32  ttr i64 (2^61 in these: never)
    40  priority i64 │ 48  time of the event i64 │ 56  created i64
    64  position of the job's row before this one u64, 0 for none
    72  holder i64: number of the session that holds the job, or that held it until this event; 0 for none
    80  integer within the tube i64, -1 for none
    88  tube number i64
    96  deliveries u32 │ 100  nacks u32 │ 104  returns u32 │ 108  ttl class u32
   112  event u8 │ 113  from u8 │ 114  to u8
   115  flags u8 (1: at most once, 2: held by a claim, 4: deleted while claimed, 8: aside, 16: was aside,
        32: given up, 64: cancelled while taken)
   116  body kind u8 │ 117  number of the tuple format of an xqueue row u8 │ 118  zone u16, reserved, 0
   120  var offset u32, within the var bytes │ 124  var length u32
   128  since i64: time at which the job entered the state "from", ms
   136  actor i64: number of the session whose command caused the event; 0 for timers and other nodes

Var fields of a row, one after the other: tag u8, length u32, bytes.

**Version 1** had rows of 128 bytes: "since", "actor" and "format" were missing, and the holder in the row of an ack was
the session that acked. Files of version 1 are read, but not written. `decode_v1` completes such a row.

**Later additions.** A reader uses the "bytes a row" of the frame, and ignores the bytes that it does not know at the
end of a row. If a reader does not know a tag or event with a number below 192, it refuses the file and reports the
number. It can skip tags and events from 192 on. The following are reserved for later versions: `zone`, TAG_RATE and
RATE_CHANGED (the used part of a rate limit).
"""

from __future__ import annotations

from typing import Final

FRAME_MAGIC: Final = 0x464E4550  # "PENF"
FRAME_VERSION: Final = 2
FRAME_HEADER_BYTES: Final = 64
ROW_BYTES: Final = 144
ROW_BYTES_V1: Final = 128

# Kinds of frames.
LOG_FRAME: Final = 1  # A frame of the log: the changes of one turn.
SNAPSHOT_FRAME: Final = 2  # A frame of a snapshot.
SNAPSHOT_END_FRAME: Final = 3  # The last frame of a snapshot.

# Offsets of the fields in a frame header. The magic is at 0.
CRC_AT: Final = 4
VERSION_AT: Final = 8
KIND_AT: Final = 9
LENGTH_AT: Final = 12
POSITION_AT: Final = 16
ENGINE_MS_AT: Final = 24
WALL_MS_AT: Final = 32
ROWS_AT: Final = 40
ROW_BYTES_AT: Final = 44
VAR_BYTES_AT: Final = 48
DURABLE_AT: Final = 56

# Offsets of the fields in a row.
ID_AT: Final = 0
ORDER_AT: Final = 8
WAKE_AT: Final = 16
EXPIRY_AT: Final = 24
TTR_AT: Final = 32
PRIORITY_AT: Final = 40
TIME_AT: Final = 48
CREATED_AT: Final = 56
BEFORE_AT: Final = 64
HOLDER_AT: Final = 72
NUMBER_AT: Final = 80
TUBE_AT: Final = 88
DELIVERIES_AT: Final = 96
NACKS_AT: Final = 100
RETURNS_AT: Final = 104
TTL_MINUTES_AT: Final = 108
EVENT_AT: Final = 112
FROM_AT: Final = 113
TO_AT: Final = 114
FLAGS_AT: Final = 115
BODY_KIND_AT: Final = 116
FORMAT_AT: Final = 117
ZONE_AT: Final = 118
VAR_OFFSET_AT: Final = 120
VAR_LENGTH_AT: Final = 124
SINCE_AT: Final = 128
ACTOR_AT: Final = 136

# The fields of a row about a job as (name, numpy type, offset), for readers that decode many rows at once.
JOB_FIELDS: Final = [
    ("job", "<i8", ID_AT),
    ("order", "<i8", ORDER_AT),
    ("wake", "<i8", WAKE_AT),
    ("expiry", "<i8", EXPIRY_AT),
    ("ttr", "<i8", TTR_AT),
    ("priority", "<i8", PRIORITY_AT),
    ("time", "<i8", TIME_AT),
    ("created", "<i8", CREATED_AT),
    ("before_position", "<i8", BEFORE_AT),
    ("holder", "<i8", HOLDER_AT),
    ("number", "<i8", NUMBER_AT),
    ("tube", "<i8", TUBE_AT),
    ("deliveries", "<u4", DELIVERIES_AT),
    ("nacks", "<u4", NACKS_AT),
    ("returns", "<u4", RETURNS_AT),
    ("ttl_minutes", "<u4", TTL_MINUTES_AT),
    ("event", "u1", EVENT_AT),
    ("before", "u1", FROM_AT),
    ("after", "u1", TO_AT),
    ("flags", "u1", FLAGS_AT),
    ("body_kind", "u1", BODY_KIND_AT),
    ("format", "u1", FORMAT_AT),
    ("zone", "<u2", ZONE_AT),
    ("since", "<i8", SINCE_AT),
    ("actor", "<i8", ACTOR_AT),
]

FLAG_ONCE: Final = 1
FLAG_CLAIMED: Final = 2
FLAG_DOOMED: Final = 4  # The job was deleted while it was claimed. It ends with its claim.
FLAG_ASIDE: Final = 8  # After this event, the job waits here for another node, which has it queued or taken.
FLAG_WAS_ASIDE: Final = 16  # Before this event, it did so.
FLAG_GIVEN_UP: Final = 32  # With this event, the retry policy ended the job or took it out of its tube.
FLAG_CANCELLED: Final = 64  # The job was cancelled while it was taken. It ends when its delivery ends.
ASIDE_SHIFT: Final = 3  # The first two bits of Copy.aside, shifted by this, are the flags.

# Event of a job's row in a snapshot: no change, only the state. The other events of jobs are numbered in states.py.
SNAPSHOT_JOB: Final = 127

# Events of rows that are not about jobs.
TUBE_MADE: Final = 128
TUBE_CHANGED: Final = 129
TUBE_DROPPED: Final = 130
INTEGERS_RESERVED: Final = 131
SESSION_MADE: Final = 132
CONSUMER_CHANGED: Final = 133
STOPPED: Final = 134  # The log was closed regularly, so no rows are missing.
SNAPSHOT_DEDUP: Final = 135  # Snapshot only: a put whose dedup id is remembered.
SNAPSHOT_END: Final = 136  # Snapshot only: the snapshot is complete. Contains the values from which counters continue.
TUBE_NAMED: Final = 137  # The name of a tube that is used in this segment, so that each segment can be read alone.
STAGES_CHANGED: Final = 138  # These stages are open, published or discarded from now on.
NOTED: Final = 139  # A note was stored under a key, or removed.
SESSION_NAMED: Final = 140  # The name and user of a session that is used in this segment.
RATE_CHANGED: Final = 141  # Reserved.
_EVENTS_KNOWN_END: Final = 141
OPTIONAL: Final = 192  # Events and tags with at least this number can be skipped by readers that do not know them.

# Var fields: a tag, a length and the bytes.
VAR_HEADER_BYTES: Final = 5
VAR_FIELD_LENGTH_AT: Final = 1  # Offset of the length in a var field. The tag is at 0.
TAG_BODY: Final = 1
TAG_KEY: Final = 2
TAG_REASON: Final = 3
TAG_RETRY: Final = 4
TAG_NAME: Final = 5
TAG_UNIQUE: Final = 6
TAG_DEDUP: Final = 7
TAG_CONSUMER: Final = 8
TAG_JSON: Final = 9
TAG_PRIORITY_GIVEN: Final = 10
TAG_BURIES: Final = 11
TAG_CLAIM: Final = 12
TAG_STAGE: Final = 13
TAG_COPY: Final = 14
TAG_NOTE: Final = 15
TAG_HEADERS: Final = 16
TAG_USER: Final = 17
TAG_BATCH: Final = 18  # Name of the stage of the batch to which a job belongs that has not ended.
TAG_RATE: Final = 19  # Reserved.
TAG_VERDICT: Final = 20  # Verdict on a job of a claim: "kind delay_ms length ", the tube of this length, the reason.
_TAGS_KNOWN_END: Final = 19


def is_unknown_event(event: int) -> bool:
    """Return whether the event of a row that is not about a job is unknown here, but required to read the log."""
    return _EVENTS_KNOWN_END <= event < OPTIONAL


def is_unknown_tag(tag: int) -> bool:
    """Return whether the tag of a var field is unknown here, but required to read the log."""
    return (_TAGS_KNOWN_END <= tag < OPTIONAL and tag != TAG_VERDICT) or tag == 0
