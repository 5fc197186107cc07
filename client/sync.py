"""The client library for programs without an event loop: the classes of :mod:`flintmq.client`, with calls that block.

::

    from flintmq.client.sync import Message, Producer

    with Producer("shop", "127.0.0.1:9876") as producer:
        print(producer.send(Message("Orders", b"hello")).msg_id)

The asynchronous classes do the work, on one event loop in a daemon thread that all clients of the process share. Every object
here can be used by any number of threads. A call that is interrupted (Ctrl-C) is cancelled. A call from inside a running event
loop raises ``RuntimeError``, because it would block that loop. The asynchronous class of the same name documents what each
method does, returns and raises. docs/client.md is the guide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Unpack

from flintmq.client.blocking import Blocking, blocking, direct, made_of, returned
from flintmq.core.broker.subscription import SubscriptionData
from flintmq.core.io.threads import submit
from flintmq.remoting import client as aio
from flintmq.remoting.client import AclSigner as AclSigner
from flintmq.remoting.client import AllocateStrategy as AllocateStrategy
from flintmq.remoting.client import Codec as Codec
from flintmq.remoting.client import CodecError as CodecError
from flintmq.remoting.client import ConsumeResult as ConsumeResult
from flintmq.remoting.client import ConsumerSettings as ConsumerSettings
from flintmq.remoting.client import FlintError as FlintError
from flintmq.remoting.client import InvalidArgumentError as InvalidArgumentError
from flintmq.remoting.client import JsonCodec as JsonCodec
from flintmq.remoting.client import Message as Message
from flintmq.remoting.client import MessageExt as MessageExt
from flintmq.remoting.client import MessageQueue as MessageQueue
from flintmq.remoting.client import OffsetStore as OffsetStore
from flintmq.remoting.client import PartlySentError as PartlySentError
from flintmq.remoting.client import PullResult as PullResult
from flintmq.remoting.client import PullStatus as PullStatus
from flintmq.remoting.client import RefusedError as RefusedError
from flintmq.remoting.client import RemotingConnectError as RemotingConnectError
from flintmq.remoting.client import RemotingError as RemotingError
from flintmq.remoting.client import RemotingTimeoutError as RemotingTimeoutError
from flintmq.remoting.client import RpcHook as RpcHook
from flintmq.remoting.client import SendResult as SendResult
from flintmq.remoting.client import SendStatus as SendStatus
from flintmq.remoting.client import TransactionResult as TransactionResult
from flintmq.remoting.client import TransactionState as TransactionState
from flintmq.remoting.client import allocate_averagely as allocate_averagely
from flintmq.remoting.client import allocate_by_circle as allocate_by_circle
from flintmq.remoting.client import allocate_by_config as allocate_by_config
from flintmq.remoting.client import allocate_by_consistent_hash as allocate_by_consistent_hash
from flintmq.remoting.client import allocate_by_machine_room as allocate_by_machine_room
from flintmq.remoting.client import allocate_nearby as allocate_nearby
from flintmq.remoting.client import make_reply as make_reply
from flintmq.remoting.client.callbacks import called, result_of
from flintmq.remoting.client.consumer import refuse_own_callers
from flintmq.remoting.client.daemon_threads import DaemonThreads
from flintmq.remoting.client.producer import SEND_TIMEOUT_MS, ProducerOptions
from flintmq.remoting.client.route import NameServers

_CHECKS_MAX: Final = 8
"""Maximum number of transaction checks that one producer runs at the same time."""

__all__ = []
__all__ += aio.__all__
# ClientInstance and RemotingClient are not exported, because both classes work only on an event loop.
__all__.remove("ClientInstance")
__all__.remove("RemotingClient")


class Producer(Blocking[aio.Producer]):
    """Sends messages; see :class:`flintmq.remoting.client.producer.Producer`."""

    @made_of(aio.Producer)
    def __init__(self, inner: aio.Producer) -> None:
        super().__init__(inner)

    @property
    def group(self) -> str:
        """The name of the producer group."""
        return self._inner.group

    queues: Final = blocking(aio.Producer.queues)
    send: Final = blocking(aio.Producer.send)
    send_batch: Final = blocking(aio.Producer.send_batch)
    send_all: Final = blocking(aio.Producer.send_all)
    send_oneway: Final = blocking(aio.Producer.send_oneway)
    request: Final = blocking(aio.Producer.request)
    reply: Final = blocking(aio.Producer.reply)


class TransactionProducer(Producer):
    """Sends messages in transactions; see :class:`flintmq.remoting.client.transaction_producer.TransactionProducer`.

    Args:
        group, name_servers, options: as in the asynchronous class.
        check: a plain function, called on a thread of this producer's pool.
    """

    _inner: aio.TransactionProducer

    def __init__(
        self,
        group: str,
        name_servers: NameServers = (),
        *,
        check: Callable[[MessageExt], TransactionState],
        **options: Unpack[ProducerOptions],
    ) -> None:

        # Transaction checks run on separate threads of the producer, not in the event loop's default executor.
        # In the event loop's default executor, slow transaction checks would delay the resolution of host names.
        threads = DaemonThreads(f"{group}-check", _CHECKS_MAX)

        async def check_in_thread(message: MessageExt) -> TransactionState:
            state: TransactionState = result_of(await submit(threads, called, check, message))
            return state

        self._threads = threads
        Blocking.__init__(self, aio.TransactionProducer(group, name_servers, check=check_in_thread, **options))

    def close(self) -> None:
        """Leave the group and close the connections, unless they are shared. A running transaction check is not stopped.
        Idempotent."""
        super().close()
        self._threads.shutdown()

    def send_in_transaction(
        self,
        message: Message,
        local: Callable[[Message, str], TransactionState],
        queue: MessageQueue | None = None,
        *,
        timeout_ms: int = SEND_TIMEOUT_MS,
    ) -> TransactionResult:
        """Send a half message, call ``local`` in this thread, and send its result (commit or rollback) to the broker.

        See :meth:`flintmq.remoting.client.transaction_producer.TransactionProducer.send_in_transaction`.
        """
        sent = self.send_half(message, queue, timeout_ms=timeout_ms)
        # The local transaction runs only if the broker has certainly stored the half message.
        is_stored = sent.status is SendStatus.SEND_OK
        return self.end(sent, local(message, sent.msg_id) if is_stored else TransactionState.ROLLBACK)

    send_half: Final = blocking(aio.TransactionProducer.send_half)
    end: Final = blocking(aio.TransactionProducer.end)


class Consumer(Blocking[aio.Consumer]):
    """A member of a consumer group; see :class:`flintmq.remoting.client.consumer.Consumer`.

    A listener is a plain function, called on up to ``ConsumerSettings.concurrency`` threads. Without a listener, iterate::

        with Consumer("billing", "127.0.0.1:9876") as consumer:
            consumer.subscribe("Orders", "new || paid")
            for message in consumer:
                ...
    """

    @made_of(aio.Consumer)
    def __init__(self, inner: aio.Consumer) -> None:
        super().__init__(inner)

    def close(self) -> None:
        """Leave the group and close the connections; see :meth:`flintmq.remoting.client.consumer.Consumer.close`.

        Raises:
            RuntimeError: called by this consumer's own listener; the call would wait for that listener to end.
        """
        refuse_own_callers([self._inner])
        super().close()

    @property
    def group(self) -> str:
        """The name of the consumer group."""
        return self._inner.group

    @property
    def settings(self) -> ConsumerSettings:
        """The settings that were passed when this consumer was created."""
        return self._inner.settings

    @property
    def subscriptions(self) -> Mapping[str, SubscriptionData]:
        """The current subscriptions of this consumer, keyed by topic."""
        return self._wait(returned(lambda: dict(self._inner.subscriptions)))

    @property
    def is_started(self) -> bool:
        """Whether this consumer is currently a member of its group."""
        return self._inner.is_started

    @property
    def troubles(self) -> Mapping[str, str]:
        """The reasons why messages cannot be consumed at present, keyed by topic or ``broker NAME``; see the asynchronous
        class."""
        return self._wait(returned(lambda: self._inner.troubles))

    subscribe: Final = blocking(aio.Consumer.subscribe)
    unsubscribe: Final = blocking(aio.Consumer.unsubscribe)
    rebalance: Final = blocking(aio.Consumer.rebalance)

    def suspend(self) -> None:
        """Stop pulling until :meth:`resume`. Messages already pulled are consumed, and the consumer stays in its group."""
        self._wait(returned(self._inner.suspend))

    def resume(self) -> None:
        """Continue to pull messages after a call of :meth:`suspend`."""
        self._wait(returned(self._inner.resume))

    commit: Final = blocking(aio.Consumer.commit)

    def __iter__(self) -> Iterator[MessageExt]:
        return self.messages()

    def messages(self, timeout_ms: int | None = None) -> Iterator[MessageExt]:
        """Iterate over the messages. A message counts as consumed when the next one is requested.

        If a ``break`` or an exception ends the loop, the current message is delivered again in the next loop.

        Args:
            timeout_ms: longest time in ms to wait for a message. The iteration ends after a longer wait. With None, the
            iteration ends only when the consumer is closed.

        Raises:
            TypeError: the consumer has a listener.
            RuntimeError: the consumer is not started, or is closed, so no message can arrive.
        """
        if not self._inner.is_started:
            raise RuntimeError(f"consumer of {self.group} is not started: use it in a with statement, or call start()")
        loop = self._wait(returned(lambda: self._inner.consumption.iteration.messages(timeout_ms)))
        try:
            while (message := self._wait(loop.next_message())) is not None:
                yield message
        finally:
            # At the end of the program, _wait() raises RuntimeError if the event loop of the clients has already stopped.
            # RuntimeError is ignored, because the iteration has ended together with the event loop.
            with contextlib.suppress(RuntimeError):
                self._wait(returned(loop.end))


class Consumers(Blocking[aio.Consumers]):
    """Runs consumers of any number of groups. Each consumer is a plain function that is declared with a decorator and called on
    threads.

    See :class:`flintmq.remoting.client.handlers.Consumers`::

        consumers = Consumers("127.0.0.1:9876")

        @consumers.handler("Orders", group="billing")
        def bill(message): ...

        consumers.run()         # until another thread calls close(), or Ctrl-C
    """

    @made_of(aio.Consumers)
    def __init__(self, inner: aio.Consumers) -> None:
        super().__init__(inner)

    def close(self) -> None:
        """Leave every consumer group, commit, and close the connections; see
        :meth:`flintmq.remoting.client.handlers.Consumers.close`.

        Raises:
            RuntimeError: called by one of the decorated functions; the call would wait for that function to end.
        """
        refuse_own_callers(self._inner._consumers)
        super().close()

    handler: Final = direct(aio.Consumers.handler)
    batch_handler: Final = direct(aio.Consumers.batch_handler)
    run: Final = blocking(aio.Consumers.run)


class PullConsumer(Blocking[aio.PullConsumer]):
    """Pulls messages on demand; see :class:`flintmq.remoting.client.pull_consumer.PullConsumer`."""

    @made_of(aio.PullConsumer)
    def __init__(self, inner: aio.PullConsumer) -> None:
        super().__init__(inner)

    @property
    def group(self) -> str:
        """The consumer group whose committed offsets this consumer reads and stores."""
        return self._inner.group

    @property
    def positions(self) -> Mapping[MessageQueue, int]:
        """The assigned queues, each with the queue offset of the next message that :meth:`poll` returns from it."""
        return self._wait(returned(lambda: self._inner.positions))

    queues: Final = blocking(aio.PullConsumer.queues)
    pull: Final = blocking(aio.PullConsumer.pull)
    assign: Final = blocking(aio.PullConsumer.assign)
    seek: Final = blocking(aio.PullConsumer.seek)
    seek_to_time: Final = blocking(aio.PullConsumer.seek_to_time)
    poll: Final = blocking(aio.PullConsumer.poll)
    committed: Final = blocking(aio.PullConsumer.committed)
    commit: Final = blocking(aio.PullConsumer.commit)
    min_offset: Final = blocking(aio.PullConsumer.min_offset)
    max_offset: Final = blocking(aio.PullConsumer.max_offset)
    search_offset: Final = blocking(aio.PullConsumer.search_offset)


class AdminClient(Blocking[aio.AdminClient]):
    """Queries and administers name servers and brokers; see :class:`flintmq.remoting.client.admin.AdminClient`."""

    @made_of(aio.AdminClient)
    def __init__(self, inner: aio.AdminClient) -> None:
        super().__init__(inner)

    topic_route: Final = blocking(aio.AdminClient.topic_route)
    cluster_info: Final = blocking(aio.AdminClient.cluster_info)
    topic_list: Final = blocking(aio.AdminClient.topic_list)
    masters: Final = blocking(aio.AdminClient.masters)
    master: Final = blocking(aio.AdminClient.master)
    create_topic: Final = blocking(aio.AdminClient.create_topic)
    delete_topic: Final = blocking(aio.AdminClient.delete_topic)
    topic_configs: Final = blocking(aio.AdminClient.topic_configs)
    topic_config: Final = blocking(aio.AdminClient.topic_config)
    topic_stats: Final = blocking(aio.AdminClient.topic_stats)
    topic_stats_at: Final = blocking(aio.AdminClient.topic_stats_at)
    topic_groups: Final = blocking(aio.AdminClient.topic_groups)
    create_group: Final = blocking(aio.AdminClient.create_group)
    delete_group: Final = blocking(aio.AdminClient.delete_group)
    group_configs: Final = blocking(aio.AdminClient.group_configs)
    group_config: Final = blocking(aio.AdminClient.group_config)
    consumer_connections: Final = blocking(aio.AdminClient.consumer_connections)
    contradictions: Final = blocking(aio.AdminClient.contradictions)
    connected_group: Final = blocking(aio.AdminClient.connected_group)
    consumer_running_info: Final = blocking(aio.AdminClient.consumer_running_info)
    producers: Final = blocking(aio.AdminClient.producers)
    consume_stats: Final = blocking(aio.AdminClient.consume_stats)
    consume_stats_at: Final = blocking(aio.AdminClient.consume_stats_at)
    all_consume_stats: Final = blocking(aio.AdminClient.all_consume_stats)
    reset_offset: Final = blocking(aio.AdminClient.reset_offset)
    invoke: Final = blocking(aio.AdminClient.invoke)
    runtime_info: Final = blocking(aio.AdminClient.runtime_info)
    broker_config: Final = blocking(aio.AdminClient.broker_config)
    broker_report: Final = blocking(aio.AdminClient.broker_report)
    broker_stats: Final = blocking(aio.AdminClient.broker_stats)
    query_by_key: Final = blocking(aio.AdminClient.query_by_key)
    view_message: Final = blocking(aio.AdminClient.view_message)
    min_offset: Final = blocking(aio.AdminClient.min_offset)
    max_offset: Final = blocking(aio.AdminClient.max_offset)
    search_offset: Final = blocking(aio.AdminClient.search_offset)
