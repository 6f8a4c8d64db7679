"""Spark as a stream: work on jobs exactly once, and bury rows that cannot be parsed while their batch continues.

penstock serve &
pip install 'penstock-queue[spark]'
python examples/spark_stream.py [DIRECTORY]
"""

import os
import sys
import tempfile

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

import penstock
from penstock.spark import session

URL = os.environ.get("PENSTOCK_URL", "penstock://127.0.0.1:7711")
PLACE = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="penstock-example-")
spark = session("local[2]")

readings = penstock.connect(URL).tube("readings", "fifottl", ttr=30)
readings.put_many([f'{{"sensor": {number % 3}, "value": {number}}}'.encode() for number in range(99)])
readings.put(b"not JSON")


def store(batch: DataFrame, number: int) -> None:
    parsed = batch.withColumn("reading", f.from_json(f.col("body").cast("string"), "sensor INT, value INT")).cache()
    good = parsed.where("reading IS NOT NULL AND reading.sensor IS NOT NULL").select("reading.*")
    good.write.mode("append").parquet(f"{PLACE}/readings")
    # Every other job is acked when its batch is finished. These are buried, with a reason.
    bad = parsed.where("reading IS NULL OR reading.sensor IS NULL").select(
        "id", "claim", f.lit("bury").alias("verdict"), f.lit("not JSON").alias("reason")
    )
    bad.write.format("penstock").mode("append").options(url=URL, tube="readings").save()
    parsed.unpersist()


jobs = spark.readStream.format("penstock").options(url=URL, tube="readings", consumer="example").load()
query = jobs.writeStream.foreachBatch(store).trigger(availableNow=True)
query.option("checkpointLocation", f"{PLACE}/checkpoint").start().awaitTermination()

spark.read.parquet(f"{PLACE}/readings").groupBy("sensor").count().orderBy("sensor").show()
print("buried:", [job.body for job in readings.jobs("buried")])
