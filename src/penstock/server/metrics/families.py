"""The table of all metrics of a node, by topic. docs/reference/metrics.md is generated from it.

The names follow Prometheus' conventions: base units, and `_total` for counters only. A counter never decreases while
the node runs: CONFIG RESETSTAT does not reset it. No metric has a label for the keys of jobs, because there can be any
number of keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"


@dataclass(frozen=True)
class Family:
    """A metric: its name, type, help and labels."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


GROUPS: Final[dict[str, tuple[Family, ...]]] = {
    "Tubes": (
        Family("penstock_tube_jobs", GAUGE, "Jobs of a tube by state.", ("tube", "state")),
        Family(
            "penstock_tube_oldest_ready_age_seconds",
            GAUGE,
            "How long the oldest job that can be taken has been ready; 0 if no job can be taken.",
            ("tube",),
        ),
        Family(
            "penstock_tube_consumers",
            GAUGE,
            "Sessions that wait for jobs of the tube or hold some; jobs of disque tubes are held by no session.",
            ("tube",),
        ),
        Family("penstock_tube_waiting_takes", GAUGE, "Takes that wait for a job of the tube.", ("tube",)),
        Family(
            "penstock_tube_paused",
            GAUGE,
            "1 if the tube is paused for puts (in) or takes (out).",
            ("tube", "direction"),
        ),
        Family("penstock_spilled_jobs", GAUGE, "Jobs of a tube whose bodies are on disk only.", ("tube",)),
        Family("penstock_tube_body_bytes", GAUGE, "Total length of the bodies of the tube's jobs.", ("tube",)),
        Family(
            "penstock_tube_transitions_total",
            COUNTER,
            "Transitions of jobs between two states, with the event that caused them.",
            ("tube", "event", "from", "to"),
        ),
        Family(
            "penstock_tube_dead_lettered_total",
            COUNTER,
            "Jobs that failed for the last allowed time (max_deliveries) or whose ttl ended (ttl).",
            ("tube", "reason"),
        ),
        Family("penstock_tube_wait_seconds", HISTOGRAM, "Time from ready to taken, one per take.", ("tube",)),
        Family("penstock_tube_run_seconds", HISTOGRAM, "Time from taken to acked, one per ack.", ("tube",)),
        Family("penstock_tubes", GAUGE, "Tubes of the node."),
        Family("penstock_tubes_not_shown", GAUGE, "Tubes without metrics, because there are more than metrics-tubes."),
    ),
    "Jobs and memory": (
        Family("penstock_jobs", GAUGE, "Jobs of the node in any state."),
        Family("penstock_memory_used_bytes", GAUGE, "Memory used by jobs, as counted by maxmemory."),
        Family("penstock_memory_limit_bytes", GAUGE, "maxmemory; 0 for no limit."),
        Family("penstock_memory_body_bytes", GAUGE, "Total length of the bodies that are in memory."),
    ),
    "Commands and connections": (
        Family(
            "penstock_commands_total",
            COUNTER,
            "Calls of a command. The result is ok, error, or waited: the reply came later.",
            ("protocol", "command", "result"),
        ),
        Family(
            "penstock_command_duration_seconds",
            HISTOGRAM,
            "Time for which a command ran, without the time that it waited.",
            ("protocol", "command"),
        ),
        Family("penstock_connections", GAUGE, "Open connections of clients.", ("protocol",)),
        Family("penstock_connections_accepted_total", COUNTER, "Connections accepted."),
        Family("penstock_connections_rejected_total", COUNTER, "Connections refused."),
        Family("penstock_waiting_clients", GAUGE, "Clients that wait for a job or another result."),
        Family("penstock_received_bytes_total", COUNTER, "Bytes received from clients."),
        Family("penstock_sent_bytes_total", COUNTER, "Bytes sent to clients."),
        Family("penstock_internal_errors_total", COUNTER, "Internal errors since the start."),
    ),
    "Journal": (
        Family("penstock_journal_bytes", GAUGE, "Bytes of the log that recovery reads."),
        Family("penstock_journal_position", GAUGE, "Position of the next row of the log."),
        Family("penstock_journal_unsynced_rows", GAUGE, "Rows that are not on disk yet."),
        Family("penstock_journal_free_bytes", GAUGE, "Free bytes of the journal's disk."),
        Family(
            "penstock_journal_oldest_segment_age_seconds",
            GAUGE,
            "Time since the oldest segment was started that recovery reads.",
        ),
        Family("penstock_journal_fsync_seconds", HISTOGRAM, "Duration of a sync of the log."),
    ),
    "Cluster": (
        Family("penstock_cluster_nodes", GAUGE, "Nodes of the cluster with this one, by state.", ("state",)),
        Family("penstock_replication_copies_wanted_total", COUNTER, "Copies that puts with copies asked for."),
        Family("penstock_replication_copies_made_total", COUNTER, "Copies that these puts got."),
        Family("penstock_replication_acks_seconds", HISTOGRAM, "Time from a put to the last copy that it waited for."),
        Family("penstock_replication_waiting_puts", GAUGE, "Puts that wait for copies."),
        Family("penstock_replication_lag_seconds", GAUGE, "For how long the oldest put waits for its copies."),
        Family("penstock_replication_given_up_total", COUNTER, "Puts that got too few copies in time."),
        Family(
            "penstock_adds_below_default_total",
            COUNTER,
            "Jobs with fewer than three copies, because some nodes do not accept copies.",
        ),
        Family("penstock_cluster_waiting_acks", GAUGE, "Acks that some nodes with a copy have not confirmed."),
        Family("penstock_cluster_handovers", GAUGE, "Handovers of jobs to other nodes that are not confirmed."),
        Family(
            "penstock_cluster_handovers_total", COUNTER, "Handovers of jobs to other nodes that ended.", ("result",)
        ),
        Family("penstock_cluster_import_jobs_total", COUNTER, "Jobs received from other nodes for consumers here."),
        Family("penstock_cluster_export_jobs_total", COUNTER, "Jobs sent to other nodes for consumers there."),
        Family("penstock_peer_up", GAUGE, "1 if the node's link to a peer is open.", ("node",)),
        Family("penstock_peer_sent_bytes_total", COUNTER, "Bytes sent to a peer.", ("node",)),
        Family("penstock_peer_received_bytes_total", COUNTER, "Bytes received from a peer.", ("node",)),
        Family("penstock_peer_unsent_bytes", GAUGE, "Bytes for a peer that it has not read yet.", ("node",)),
        Family("penstock_peer_silence_seconds", GAUGE, "Time since the last answer of a peer.", ("node",)),
    ),
    "Process": (
        Family("penstock_build_info", GAUGE, "Version and build; always 1.", ("version", "python", "compiled")),
        Family(
            "penstock_event_loop_lag_seconds", HISTOGRAM, "How late the event loop runs a timer, ten times a second."
        ),
        Family("process_cpu_seconds_total", COUNTER, "User and system CPU time."),
        Family("process_resident_memory_bytes", GAUGE, "Resident memory size."),
        Family("process_virtual_memory_bytes", GAUGE, "Virtual memory size."),
        Family("process_start_time_seconds", GAUGE, "Start time of the process, in seconds since 1970."),
        Family("process_open_fds", GAUGE, "Open file descriptors."),
        Family("process_max_fds", GAUGE, "Maximum number of open file descriptors."),
        Family("python_gc_collections_total", COUNTER, "Garbage collections.", ("generation",)),
        Family("python_gc_objects_collected_total", COUNTER, "Objects that were collected.", ("generation",)),
        Family("python_gc_objects_uncollectable_total", COUNTER, "Objects that cannot be collected.", ("generation",)),
    ),
}
FAMILIES: Final[tuple[Family, ...]] = tuple(family for group in GROUPS.values() for family in group)
