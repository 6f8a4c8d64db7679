"""The lake: Delta tables on a disk or an object store. This package needs deltalake and pyarrow, but not Spark."""
