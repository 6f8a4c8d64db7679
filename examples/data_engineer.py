"""Penstock for data engineers, cell by cell: from a DataFrame to jobs, from jobs to a table, from a history to answers.

Run it whole, or open it in an editor that knows cells (`# %%`) and run one after the other:

    pip install 'penstock-queue[spark,server]'
    penstock serve &
    python examples/data_engineer.py [DIRECTORY]

It asks the server at PENSTOCK_URL, or on this machine, and writes its tables below the directory, or a new one.
"""

# %% A session. It finds Java or brings its own, and knows both formats: "penstock" and "penstock_events".
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

# %% Rows become jobs. All of them are seen at once, when the write is done, however often Spark tries a task.
orders = queue.tube("orders", "utubettl", ttr=30, max_deliveries=2)  # One order of a customer at a time.
rows = spark.range(300).select(
    f.concat(f.lit("customer "), f.col("id") % 100).alias("key"),
    f.to_json(f.struct(f.col("id").alias("order"), (f.col("id") * 7 % 100).alias("euros"))).alias("body"),
)
rows.write.format("penstock").mode("append").options(url=URL, tube="orders", kind="json").save()
print(orders.stats()["ready"], "orders are ready")

# %% What waits can be looked at, and nothing is taken by it.
waiting = spark.read.format("penstock").options(url=URL, tube="orders").load()
waiting.groupBy("state", f.col("key").cast("string")).count().orderBy("key").show(3)

# %% Anybody works on jobs: here two by hand, of which one goes wrong.
for job in orders.take_many(1):
    with job:
        print("order", job.body["order"], "is sent")
for _ in range(2):
    for job in orders.take_many(1, key="customer 3"):
        job.nack("no such address")
print(orders.stats()["buried"], "order is buried")

# %% And Spark works on the rest, as a stream. Jobs are acked when the rows of their batch are written, not before.
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

# %% Everything that happened is a table, too: a row for each event of each job.
events = spark.read.format("penstock_events").options(url=URL, tube="orders").load()
events.groupBy("event").count().orderBy(f.desc("count"), "event").show()

# %% Why did orders fail? A question of your own, in SQL.
events.createOrReplaceTempView("events")
failed = "SELECT decode(key, 'utf-8') AS customer, reason, count(*) FROM events WHERE event = 'nacked' GROUP BY ALL"
spark.sql(failed).show()

queue.close()
