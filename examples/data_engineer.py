"""Penstock for data engineers: write a DataFrame as jobs, write jobs to a table, and query the history.

Run the whole file, or open it in an editor that supports cells (`# %%`) and run one cell after the other:

    pip install 'penstock-queue[spark,server]'
    penstock serve &
    python examples/data_engineer.py [DIRECTORY]

It uses the server at PENSTOCK_URL, or the one on this machine. It writes its tables to DIRECTORY or a new directory.
"""

# %% Start a Spark session. It finds Java or uses its own, and has both formats: "penstock" and "penstock_events".
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import functions as f

import penstock
from penstock.spark import session

URL = os.environ.get("PENSTOCK_URL", "penstock://127.0.0.1:7711")
PLACE = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="penstock-example-"))

spark = session("local[2]")
queue = penstock.connect(URL)

# %% Write rows as jobs. All jobs become visible together at the end of the write, even if Spark repeats a task.
orders = queue.tube("orders", "utubettl", ttr=30, max_deliveries=2)  # One order of a customer at a time.
rows = spark.range(300).select(
    f.concat(f.lit("customer "), f.col("id") % 100).alias("key"),
    f.to_json(f.struct(f.col("id").alias("order"), (f.col("id") * 7 % 100).alias("euros"))).alias("body"),
)
rows.write.format("penstock").mode("append").options(url=URL, tube="orders", kind="json").save()
print(orders.stats()["ready"], "orders are ready")

# %% Read the waiting jobs as rows. This takes no jobs.
waiting = spark.read.format("penstock").options(url=URL, tube="orders").load()
waiting.groupBy("state", f.col("key").cast("string")).count().orderBy("key").show(3)

# %% Take two jobs in Python. One of them fails twice and is buried.
for job in orders.take_many(1):
    with job:
        print("order", job.body["order"], "is sent")
for _ in range(2):
    for job in orders.take_many(1, key="customer 3"):
        job.nack("no such address")
print(orders.stats()["buried"], "order is buried")

# %% Process the other jobs as a stream. Jobs are acked after the rows of their batch were written.
stream = spark.readStream.format("penstock").options(url=URL, tube="orders").load()
lines = stream.select(f.from_json(f.col("body").cast("string"), "order BIGINT, euros BIGINT").alias("line"))
query = (
    lines.select("line.*")
    .writeStream.format("parquet")
    .option("checkpointLocation", str(PLACE / "checkpoint"))
    .trigger(availableNow=True)
    .start(str(PLACE / "sent"))
)
query.awaitTermination()
print(spark.read.parquet(str(PLACE / "sent")).count(), "orders are written")

# %% Read the history as a table, with one row for each event of each job.
events = spark.read.format("penstock_events").options(url=URL, tube="orders").load()
events.groupBy("event").count().orderBy(f.desc("count"), "event").show()

# %% Ask your own question in SQL: why did orders fail?
events.createOrReplaceTempView("events")
failed = "SELECT decode(key, 'utf-8') AS customer, reason, count(*) FROM events WHERE event = 'nacked' GROUP BY ALL"
spark.sql(failed).show()

queue.close()
