"""The application: ``uvicorn orders_fastapi.app:app``.

If ``ORDERS_NAME_SERVERS`` has the address of name servers, the application uses the broker that these name servers know.
Otherwise the application runs a broker in this process, with its store in ``ORDERS_STORE``. Bills are lines of the file
``ORDERS_BILLS``.
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
    """An order of a customer: the body of ``POST /orders`` and of a message."""

    id: str
    article: str


class State(TypedDict):
    """The values that the application's request handlers read from ``request.state``."""

    producer: Producer
    bills: Path


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[State]:
    """Start broker, producer and consumer for the time in which the application runs; end them in the reverse order. uvicorn
    leaves this context manager after it has answered the last request, so no more messages are sent. Then the consumer finishes
    its message and commits, and the broker makes its log durable.
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
    """Return a broker that only this process can use. The broker acknowledges a message when the message is on disk."""
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
    """Accept an order. The order is on disk before the answer is sent, so that no crash of the process loses the order."""
    producer: Producer = request.state.producer
    sent = await producer.send(Message("Orders", order.model_dump_json().encode(), keys=order.id))
    return {"id": order.id, "message": sent.msg_id}


@app.get("/bills")
def list_bills(request: Request) -> list[str]:
    """Return the ids of the orders that are billed."""
    bills: Path = request.state.bills
    return bills.read_text("utf-8").split()
