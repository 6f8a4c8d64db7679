"""Reading the log as history: by position, by job, and as columns."""
