"""Retries with backoff, dead letters, and trying them again.

python examples/retries.py
"""

import penstock

queue = penstock.open(":memory:")
# Two deliveries, without a pause so that the example is short. Usually: "5x exp(1s..10m) jitter then bury".
pages = queue.tube("pages", ttr=30, retry="2x then bury")
pages.put_many(["/ok", "/broken", "/gone"])

FIXED: set[str] = set()


def fetch(page: str) -> None:
    if page == "/broken" and page not in FIXED:
        raise RuntimeError("503 from the shop")
    if page == "/gone":
        raise RuntimeError("404")


def work() -> None:
    while (job := pages.take()) is not None:
        try:
            fetch(job.body)
        except RuntimeError as error:
            job.nack(str(error))  # The retry policy decides what happens next.
        else:
            job.ack()
            print("fetched", job.body, f"with delivery {job.deliveries}")


work()
for job in pages.jobs("buried"):
    print("buried:", job.body, "because:", job.meta()["reason"])

# The shop works again: try its page once more, and delete the other one.
FIXED.add("/broken")
for job in pages.jobs("buried"):
    if "503" in job.meta()["reason"]:
        job.dig()
    else:
        job.delete()
work()
