"""Conversion of a job to a `JobImage`, the form in which messages contain jobs, and of an image to a job."""

from __future__ import annotations

from mypy_extensions import i32, i64, u8

from penstock.cluster.messages import JobImage
from penstock.cluster.state import ClusterState
from penstock.core import states as s
from penstock.core.copy_commands import admit
from penstock.core.errors import CommandError
from penstock.core.ids import LONG_ID_BYTES
from penstock.core.job import ASIDE_NEXT, BODY_MSGPACK, COPY_UNWARNED, Copy, Job
from penstock.core.limits import DURATION_MS_MAX, NACKS_MAX, NEVER, check_body
from penstock.core.tube import Tube


def image_of(place: ClusterState, job: Job, now: i64) -> JobImage:
    """Return the image of a job, with its body. Raise CommandError if the body cannot be read from disk."""
    image = outline_of(place, job, now)
    image.body = place.body_of(job)
    return image


def outline_of(place: ClusterState, job: Job, now: i64) -> JobImage:
    """Return the image of a job, but with an empty body."""
    image = JobImage(place.id_of(job), place.engine.tube_of(job).name, b"")
    copy = job.copy()
    image.body_kind = i64(job.body_kind)
    image.repl = 1 if copy is None else i64(copy.repl)
    image.holders = [place.myself] if copy is None else place.known_holders(copy.holders)
    image.age_ms = max(0, now - job.created)
    image.order = job.order
    image.ttl_ms = NEVER if job.expiry == NEVER else max(0, job.expiry - now)
    image.delay_ms = 0 if job.wake == NEVER or job.state == s.TAKEN else max(0, job.wake - now)
    image.retry_ms = 0 if job.once else job.ttr
    image.nacks = i64(job.nacks)
    image.returns = i64(job.returns)
    image.deliveries = i64(job.deliveries)
    image.state = i64(job.state)
    image.reason = b"" if job.extra is None else job.extra.reason
    image.headers = job.headers()
    return image


def take_in(
    place: ClusterState, image: JobImage, tube: Tube, wake: i64, state: u8, now: i64, buried: bool = False
) -> Job | None:
    """Add the job of an image to `tube`, and return it. `state` is the state of the copy (copy_states.py).

    The job is buried if `buried`. Otherwise it is delayed until `wake`, or ready if `wake` is NEVER. Return None if the
    job has expired, the image is invalid, or there is no space.
    """
    engine = place.engine
    if image.ttl_ms <= 0 or not _is_sane(image):
        return None
    try:
        check_body(len(image.body), engine.body_bytes_max)
        engine.check_room(1, len(image.body) + len(image.headers))
    except CommandError:
        return None
    job = Job(engine.next_id, tube.slot, image.body, u8(image.body_kind), now - image.age_ms)
    job.since = now
    job.order = image.order
    job.once = image.retry_ms == 0
    job.ttr = NEVER if job.once else image.retry_ms
    job.expiry = NEVER if image.ttl_ms == NEVER else now + image.ttl_ms
    job.wake = wake
    job.nacks = i32(image.nacks)
    job.returns = i32(image.returns)
    job.deliveries = i32(image.deliveries)
    job.ttl_minutes = ttl_minutes(image.id)
    holders = [place.node(node) for node in image.holders]
    if place.myself not in holders:
        holders.append(place.myself)
    extra = job.ensure_extra()
    copy = Copy(image.id, i32(image.repl), holders, state)
    if state == COPY_UNWARNED and wake != NEVER and not buried and not job.once:
        # Another node has the job queued or taken, and this one only has a copy.
        copy.aside = ASIDE_NEXT
    extra.copy = copy
    extra.reason = image.reason
    extra.headers = image.headers
    assert image.id not in place.foreign, "a node has at most one copy of a job"
    assert job.once or not place.recent.contains(image.id), "a job that has a tombstone is not stored again"
    place.foreign[image.id] = job.id
    admit(engine, job, tube, buried, now)
    return job


def _is_sane(image: JobImage) -> bool:
    """Return whether the values of an image are valid. A peer is authenticated, but it may be faulty."""
    if len(image.id) != LONG_ID_BYTES or not 0 <= image.body_kind <= BODY_MSGPACK or not 0 < image.repl <= 65_535:
        return False
    for count in (image.nacks, image.returns, image.deliveries):
        if count < 0 or count > NACKS_MAX:
            return False
    if image.order < 0 or image.age_ms < 0 or image.age_ms > DURATION_MS_MAX:
        return False
    for time in (image.ttl_ms, image.delay_ms, image.retry_ms):
        if time < 0 or (time > DURATION_MS_MAX and time != NEVER):
            return False
    return True


def ttl_minutes(id: bytes) -> i32:
    """Return the ttl in minutes that a job id encodes, or 0 if it encodes none."""
    try:
        return i32(int(id[36:40], 16))
    except ValueError:
        return 0


def merge_holders(place: ClusterState, copy: Copy, nodes: list[bytes]) -> None:
    """Add nodes to the holders of a job. The next row of the job in the log contains them."""
    for node in nodes:
        if node not in copy.holders:
            copy.holders.append(place.node(node))
            copy.logged = False


def count(job: Job, nacks: i64, returns: i64) -> None:
    """Raise a job's counters of nacks and returns to the values that another holder reported."""
    if i64(job.nacks) < nacks <= NACKS_MAX:
        job.nacks = i32(nacks)
    if i64(job.returns) < returns <= NACKS_MAX:
        job.returns = i32(returns)
