"""The application: ``uvicorn orders_fastapi.app:app``.

``ORDERS_NAME_SERVERS`` has it use a broker elsewhere; without it a broker lives in this process, with its store in
``ORDERS_STORE``. Bills are lines of the file ``ORDERS_BILLS``.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypedDict

from fastapi import FastAPI, Request
from pydantic import BaseModel

import flintmq
from flintmq.client import AdminClient, Consumers, ConsumerSettings, Message, MessageExt, Producer

FROM_FIRST = ConsumerSettings(consume_from="CONSUME_FROM_FIRST_OFFSET", close_timeout_s=10)


class Order(BaseModel):
    """What a customer wants."""

    id: str
    article: str


class State(TypedDict):
    """What requests find in ``request.state``."""

    producer: Producer
    bills: Path


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[State]:
    """Start broker, producer and consumer; end them in the reverse order.

    uvicorn comes to the end when it takes no more requests and has answered those under way: so nothing is sent any more,
    the consumer finishes the message it has and commits, and the broker makes its log durable.
    """
    bills = Path(os.environ.get("ORDERS_BILLS", "bills.txt"))
    bills.touch()
    async with AsyncExitStack() as running:
        elsewhere = os.environ.get("ORDERS_NAME_SERVERS")
        broker = elsewhere or await running.enter_async_context(embedded())
        if not isinstance(broker, str):
            async with AdminClient(broker) as admin:
                await admin.create_topic("Orders", queues=4)
        producer = await running.enter_async_context(Producer("orders", broker))
        consumers = Consumers(broker)

        @consumers.handler("Orders", group="billing", settings=FROM_FIRST)
        async def bill(message: MessageExt) -> None:
            order = Order.model_validate_json(message.body)
            with bills.open("a", encoding="utf-8") as file:
                file.write(f"{order.id}\n")

        await running.enter_async_context(consumers)
        yield {"producer": producer, "bills": bills}


def embedded() -> flintmq.Broker:
    """Return a broker for this process alone, which acknowledges what is on disk."""
    store = os.environ.get("ORDERS_STORE", "store")
    return flintmq.Broker(
        flintmq.load_config(
            overrides=[
                f"store.path={store}",
                "store.commit_log_file_bytes=16MiB",
                "flush.strategy=group_commit",
                "listen.enable=false",
            ]
        )
    )


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def take_order(order: Order, request: Request) -> dict[str, str]:
    """Take an order. It is on disk when this is answered, whatever becomes of the process then."""
    producer: Producer = request.state.producer
    sent = await producer.send(Message("Orders", order.model_dump_json().encode(), keys=order.id))
    return {"id": order.id, "message": sent.msg_id}


@app.get("/bills")
def list_bills(request: Request) -> list[str]:
    """List the orders that are billed."""
    bills: Path = request.state.bills
    return bills.read_text("utf-8").split()
