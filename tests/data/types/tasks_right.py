"""Correct uses of tasks. mypy --strict and pyright accept them (tests/tasks/test_types.py)."""

import asyncio
from datetime import UTC, datetime, timedelta

import penstock

app = penstock.App(":memory:")


@app.task
def add(x: int, y: int = 1) -> int:
    return x + y


@app.task(tube="emails", retry="5x exp(1s..10m)", ttr=60, key=lambda to, **_: str(to), limit_per_key=2)
async def send(ctx: penstock.Context, to: str) -> str:
    ctx.progress(1, 2)
    ctx.put(add.call(1))
    return to


@app.task
def report(ctx: penstock.Context, *, day: int) -> None: ...


@app.task
def name(number: int | str, prefix: str) -> str:
    return f"{prefix}{number}"


def put() -> str:
    total: int = add.put(1, y=2).result()
    direct: int = add(total)
    later: penstock.Handle[str] = send.after(timedelta(minutes=1)).put(to="ann")
    send.at(datetime(2030, 1, 1, tzinfo=UTC)).put("ann")
    many: list[penstock.Handle[int]] = add.put_many(add.call(number) for number in range(direct))
    report.put(day=len(many))
    chained: penstock.Handle[str] = app.put(add.call(1).pipe(name, prefix="n").then(send.call("ann")))
    piped: penstock.Handle[str] = app.put(add.call(1).pipe(name.with_options(priority=1), "n"))
    app.put_many(
        [add.call(1).then(name.call(2, "n")), name.call(1, prefix="n"), report.call(day=1).then(send.call("a"))]
    )
    print(chained.result() + piped.result())
    for each in later.stream():
        print(each.fraction)
    return later.wait().reason


async def put_async() -> str:
    handle: penstock.AsyncHandle[str] = await send.aput("ann")
    await handle.cancel()
    return await handle.result() + await send("ann")


print(put(), asyncio.run(put_async()))
