"""The Spark source and sink `penstock`: the jobs of a server."""
