"""The part of the engine on which tasks and workers rest: signals, progress, follow-up jobs, batches."""
