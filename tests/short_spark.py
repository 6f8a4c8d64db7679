"""Settings for Spark in tests: short queries take longer to compile than to run, and a Java process runs briefly."""

from __future__ import annotations

from pathlib import Path

QUERIES = {
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.adaptive.enabled": False,
    "spark.sql.codegen.wholeStage": False,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
TUNED = {**QUERIES, "spark.driver.extraJavaOptions": SHORT_LIVED}


def short_spark(directory: Path) -> dict[str, str]:
    """Return environment variables with which commands that start Spark have these settings.

    Spark reads them from a file in `directory`. Settings of the command itself take precedence.
    """
    directory.mkdir()
    lines = [f"{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in QUERIES.items()]
    (directory / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    return {
        "SPARK_CONF_DIR": str(directory),
        "SPARK_SUBMIT_OPTS": SHORT_LIVED,
        "SPARK_LAUNCHER_OPTS": SHORT_LIVED,
    }
