"""At most two jobs of a customer run at the same time, and the customers take turns.

python examples/limits_per_key.py
"""

import threading
import time
from collections import Counter

import penstock

queue = penstock.open(":memory:")
requests = queue.tube("requests", "utubettl", key_limit=2, fair=True, ttr=30)

# A busy customer with many requests comes first. With `fair`, the others do not wait for all of them.
for customer, count in (("busy", 30), ("calm", 3), ("quiet", 3)):
    requests.put_many([f"{customer} {number}" for number in range(count)], key=customer)

lock = threading.Lock()
running: Counter[str] = Counter()
most: Counter[str] = Counter()
order: list[str] = []


def work() -> None:
    while (job := requests.take()) is not None:
        customer = job.body.split()[0]
        with lock:
            running[customer] += 1
            most[customer] = max(most[customer], running[customer])
            order.append(customer)
        time.sleep(0.001)  # The work.
        with lock:
            running[customer] -= 1
        job.ack()


workers = [threading.Thread(target=work) for _ in range(6)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()

print("most at the same time:", dict(sorted(most.items())))
print("the first request of each customer was number", {name: order.index(name) + 1 for name in sorted(most)})
assert max(most.values()) <= 2
