"""A worker for asyncio: ten jobs at a time, and a clean end on SIGTERM or Ctrl-C.

penstock serve &
penstock put greetings '"ann"' --as json
python examples/asyncio_worker.py [NUMBER OF JOBS]     # Without a number it runs until it is stopped.
"""

import asyncio
import signal
import sys

import penstock

CONCURRENCY = 10


async def greet(name: str) -> None:
    await asyncio.sleep(0.01)  # The work, for example a request.
    print("hello", name, flush=True)


async def work_on(job: penstock.AsyncJob, free: asyncio.Semaphore) -> None:
    try:
        async with job:  # Acks the job, or reports its failure.
            await greet(job.body)
    except Exception as error:
        print("failed:", job.id, error, file=sys.stderr)
    finally:
        free.release()


async def main(jobs_left: float) -> None:
    stopping = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stopping.set)
    free = asyncio.Semaphore(CONCURRENCY)
    async with penstock.connect_async() as queue, asyncio.TaskGroup() as running:
        greetings = await queue.tube("greetings", ttr=30)
        while jobs_left and not stopping.is_set():
            await free.acquire()  # Take a job only when there is time for it.
            job = await greetings.take(timeout=1)
            if job is None:
                free.release()
                continue
            jobs_left -= 1
            running.create_task(work_on(job, free))
        # The group waits for the jobs that are running. Then the connection is closed.


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else float("inf")))
