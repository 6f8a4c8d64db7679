"""A durable queue inside one process: no server, one directory. Run it twice to see that jobs survive.

pip install penstock-queue
python examples/embedded.py [DIRECTORY]
"""

import sys

import penstock

directory = sys.argv[1] if len(sys.argv) > 1 else "./example-jobs"

with penstock.open(directory) as queue:
    emails = queue.tube("emails", ttr=30)
    left = emails.stats()["ready"]
    print(f"{left} jobs were left by an earlier run")

    for name in ("ann", "bob", "cleo"):
        emails.put({"to": f"{name}@example.org"})

    # Work on two jobs. The third one stays in the directory, as if the process had been killed here.
    for _ in range(2):
        with emails.take() as job:  # Acks the job at the end of the block. If the block raises, the job is retried.
            print("send to", job.body["to"], f"(delivery {job.deliveries})")

    print([event.event for event in job.history()])
