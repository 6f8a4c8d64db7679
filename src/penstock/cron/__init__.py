"""Cron: schedules that are stored in the queue, and schedulers that put one job per tick, however many of them run."""
