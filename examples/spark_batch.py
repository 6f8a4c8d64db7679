"""Spark in batches: write rows as jobs, read jobs as rows, and query the history.

penstock serve &
pip install 'penstock-queue[spark]'
python examples/spark_batch.py
"""

import os

from pyspark.sql import functions as f

import penstock
from penstock.spark import session

URL = os.environ.get("PENSTOCK_URL", "penstock://127.0.0.1:7711")
spark = session("local[2]")
where = {"url": URL, "tube": "invoices"}
invoices = penstock.connect(URL).tube("invoices")

# A write is all or nothing: all jobs become visible together, even if Spark repeats a task.
invoice = f.struct(f.col("id").alias("invoice"), (f.col("id") * 3).alias("euros"))
rows = spark.range(100).select(f.to_json(invoice).alias("body"))
rows.write.format("penstock").mode("append").options(**where, kind="json").save()

# A worker, here in the same program, finishes ten of them.
for job in invoices.take_many(10):
    job.ack()

# Reading jobs does not take them.
waiting = spark.read.format("penstock").options(**where).load()
waiting.select(f.from_json(f.col("body").cast("string"), "invoice INT, euros INT").alias("job")).agg(
    f.count("*").alias("waiting"), f.sum("job.euros").alias("euros")
).show()

# The history has every event of every job.
history = spark.read.format("penstock_events").options(url=URL, tube="invoices").load()
history.createOrReplaceTempView("history")
spark.sql("SELECT event, count(*) AS events FROM history GROUP BY event ORDER BY event").show()
