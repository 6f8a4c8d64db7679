"""Wrong uses of tasks: each line with `wrong` is an error for mypy and for pyright (tests/tasks/test_types.py)."""

import penstock

app = penstock.App(":memory:")


@app.task
def add(x: int, y: int = 1) -> int:
    return x + y


@app.task(tube="emails")
async def send(ctx: penstock.Context, to: str) -> str:
    return to


add.put("1")  # wrong
add.put(1, z=2)  # wrong
add.put()  # wrong
add.call(1, 2, 3)  # wrong
add.after(5).put(x="1")  # wrong
text: str = add.put(1).result()  # wrong
send.put(to=1)  # wrong
send.put()  # wrong
send.put(ctx=None, to="ann")  # wrong
add.put_many(send.call("ann") for _ in range(3))  # wrong
add.call(1).then(send.call(to=1))  # wrong
add.call(1).then(send)  # wrong
add.call(1).pipe(send)  # wrong
add.call(1).pipe(add, y="1")  # wrong
add.call(1).pipe(add, z=1)  # wrong
result: str = app.put(add.call(1).pipe(add, y=2)).result()  # wrong


async def put() -> None:
    await send.aput(1)  # wrong
    number: int = await (await send.aput("ann")).result()  # wrong
    print(number)
