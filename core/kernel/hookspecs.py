"""The manual for authors of plugins: every hook that FlintMQ calls, with the types of its arguments.

A plugin is a module, a class or another object with functions that have the names of hooks. The decorator ``hookimpl`` marks
these functions::

    from flintmq.core.kernel.hookspecs import hookimpl

    def make_audit(context: DispatcherContext[AuditSection]) -> AuditDispatcher:
        return AuditDispatcher(context.settings.path)

    @hookimpl
    def flintmq_dispatchers(register: RegisterDispatcher) -> None:
        register("audit", make_audit)

FlintMQ loads its built-ins, the entry points of the group ``flintmq``, and the plugins that the setting ``plugins`` lists.
``package.module`` in that list names a module like the one above; ``package.module:object`` names an object or a class in a
module.

Hooks are called once, while a broker is assembled. They register factories and other objects under names. Later calls, such as
the calls for each message, go directly to the registered objects. Every hook is optional.

Two plugins may register the same name. The configuration then selects one with ``plugin/name``. Without such a setting, the
registration of a third party replaces the built-in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import attrs
import pluggy

from flintmq.core.errors import StoreError
from flintmq.core.io.clock import Clock
from flintmq.core.kernel.ports import (
    Authenticator,
    CommitLogDispatcher,
    FlushStrategy,
    IndexBuilder,
    IntakeStep,
    MessageFilterFactory,
    StoreFolder,
    SystemTopic,
    TransientStorePool,
)
from flintmq.core.kernel.ports.processor import DefaultProcessorFactory, ProcessorFactory, RequestDeclaration

if TYPE_CHECKING:
    import click

    from flintmq.core.broker.api import BrokerApi, ServiceFactory
    from flintmq.core.record.dispatch_request import DispatchRequest
    from flintmq.core.record.record_batch import RecordBatch
    from flintmq.core.store.opened_store import OpenedStore

PROJECT = "flintmq"
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker(PROJECT)
hookimpl: pluggy.HookimplMarker = pluggy.HookimplMarker(PROJECT)


@attrs.frozen
class PluginContext(Generic[S_co]):
    """The context that FlintMQ passes to the factories of message filters and authenticators. It is the base class of all other
    contexts.

    A factory gets its context as its only argument. ``PluginContext[MySection]`` names the type of the settings."""

    settings: S_co
    """The plugin's own section of the configuration (see ``flintmq_config_sections``); None if the plugin has no section."""
    clock: Clock


@attrs.frozen(kw_only=True)
class ApiContext(PluginContext[S_co]):
    """The context for the factories of services, request processors, default processors, connection listeners, RPC hooks and
    intake steps. An intake step may change, redirect or refuse a message before it is stored."""

    api: BrokerApi
    """The broker that calls the factory. If a name server calls the factory, this attribute is the
    :class:`flintmq.programs.name_server.name_server.NameServer`."""

    if not TYPE_CHECKING:
        # __getattr__ is hidden from type checkers, so that they report an unknown attribute.

        def __getattr__(self, name: str) -> object:
            raise AttributeError(
                f"expected context.settings, context.clock or context.api.{name}; found context.{name}"
            )


@attrs.frozen(kw_only=True)
class PoolContext(PluginContext[S_co]):
    """The context for the factories of transient store pools."""

    buffers: int
    """Number of buffers of the transient store pool."""
    size_bytes: int
    """Size, in bytes, of each buffer of the transient store pool. The size is equal to the size of a commit log file."""


@attrs.frozen(kw_only=True)
class FolderContext(PluginContext[S_co]):
    """The context for the factories of index builders and of the dispatcher ``consume_queue``.

    The context has no open store, because the recovery of the store uses the objects that these factories return."""

    folder: StoreFolder
    """Folder of the store, whose log is not recovered yet."""
    filters: Mapping[str, MessageFilterFactory] = attrs.field(factory=dict)
    """Factories of message filters, keyed by expression type."""


@attrs.frozen(kw_only=True)
class DispatcherContext(FolderContext[S_co]):
    """The context for the factories of all dispatchers but ``consume_queue``."""

    store: OpenedStore
    """The recovered store, whose records will be dispatched. The factory may read from the store, but not write to it."""

    def bodies(self, batch: RecordBatch) -> Iterator[tuple[DispatchRequest, bytes]]:
        """Yield the dispatch request and the body of each record of a batch. Call this method within
        :meth:`CommitLogDispatcher.dispatch`.

        A batch has the positions of records, but not their bytes, which most dispatchers do not need. This method reads the
        bytes from the log. After ``dispatch`` has returned, retention may delete the bytes. A body is yielded as it is stored:
        it is compressed if bit 0 of the dispatch request's ``sys_flag`` is set.

        Raises:
            StoreError: the log no longer contains a record of the batch.
        """
        # decode_record is imported late, because most dispatchers read no bodies of messages.
        from flintmq.core.record.record import decode_record

        for request in batch.requests():
            start, size = request.commit_log_offset_bytes, request.message_size_bytes
            piece = self.store.commit_log.slice(start, size)
            if piece is None or len(piece) < size:
                raise StoreError(f"the log no longer contains the record of {size} bytes at position {start}")
            yield request, decode_record(piece, check_crc=False).body


DispatcherFactory = Callable[[DispatcherContext[S]], CommitLogDispatcher]
PoolFactory = Callable[[PoolContext[S]], TransientStorePool]
IndexBuilderFactory = Callable[[FolderContext[S]], IndexBuilder]
IntakeStepFactory = Callable[[ApiContext[S]], IntakeStep | None]
"""Function that returns an object that may change, redirect or refuse messages before they are stored. It returns None if the
configuration needs no such object. The broker calls the function before it starts any service."""
FilterFactory = Callable[[PluginContext[S]], MessageFilterFactory]
"""Function that returns a :data:`MessageFilterFactory`, which makes a message filter from an expression and the expression's
set of tags codes."""
AuthenticatorFactory = Callable[[PluginContext[S]], Authenticator]


class RegisterDispatcher(Protocol):
    def __call__(self, name: str, factory: DispatcherFactory[S], *, essential: bool = False) -> None: ...


class RegisterFlushStrategy(Protocol):
    def __call__(self, strategy: FlushStrategy[S]) -> None: ...


class RegisterPool(Protocol):
    def __call__(self, name: str, factory: PoolFactory[S]) -> None: ...


class RegisterIndexBuilder(Protocol):
    def __call__(self, name: str, factory: IndexBuilderFactory[S]) -> None: ...


class RegisterProcessor(Protocol):
    def __call__(
        self,
        name: str,
        codes: Sequence[int | RequestDeclaration],
        factory: ProcessorFactory,
        *,
        at: str = "broker",
        pool: str = "admin",
        threads: int | None = None,
    ) -> None:
        """Register the factory of a request processor; see ``flintmq_request_processors``."""


class RegisterFilter(Protocol):
    def __call__(self, expression_type: str, factory: FilterFactory[S]) -> None: ...


class RegisterAuthenticator(Protocol):
    def __call__(self, name: str, factory: AuthenticatorFactory[S]) -> None: ...


class RegisterDefaultProcessor(Protocol):
    def __call__(
        self,
        name: str,
        factory: DefaultProcessorFactory,
        *,
        at: str = "broker",
        pool: str = "admin",
        threads: int | None = None,
    ) -> None:
        """Register the factory of a default processor, which has ``handle(request)``; see ``flintmq_default_processors``."""


class RegisterServerPart(Protocol):
    def __call__(self, name: str, factory: Callable[..., object], *, at: str = "broker") -> None:
        """Register the factory of a connection listener or RPC hook; ``at`` is ``broker``, ``nameserver`` or ``both``."""


class RegisterService(Protocol):
    def __call__(self, name: str, factory: ServiceFactory) -> None:
        """Register the factory of a service. The factory is called with an :class:`ApiContext`."""


class RegisterIntakeStep(Protocol):
    def __call__(self, name: str, factory: IntakeStepFactory[S], *, essential: bool = True) -> None:
        """Register the factory of an intake step, which may change or refuse a message before it is stored.

        The factory is called with an :class:`ApiContext`.
        """


class RegisterSystemTopic(Protocol):
    def __call__(self, topic: SystemTopic) -> None: ...


class RegisterConfigSection(Protocol):
    def __call__(self, name: str, model: type[object]) -> None:
        """Register an attrs class as the model of a section of the configuration.

        The broker makes an object of the class from the YAML section ``name``. The contexts of the plugin's factories have this
        object as ``settings``.
        """


class RegisterCommand(Protocol):
    def __call__(self, name: str, command: click.Command, *, help: str = "") -> None:
        """Register a subcommand of ``flintmq``. ``help`` replaces the help text of the command, unless ``help`` is empty."""


class FlintSpecs:
    """**Form of a plugin.** A hook is a plain function that takes the arguments of its specification, by name.

    A hook that registers something returns nothing. A factory is a plain function of one argument, the context. It returns an
    object with the methods of a port, which is an interface in ``core/kernel/ports/``. The methods are plain methods unless the
    port allows ``async def``.

    **Mistakes are found at the start** of a broker, and by ``flintmq config check``. The check calls the same factories as a
    start, with a store in a scratch folder. The error names the plugin, the hook and the registered name, and says which form
    was expected and which was found. Built-ins are not checked at the start, but by mypy and the tests.

    **Failures while the broker runs** are counted for the plugin that registered the failing object (a part of the plugin). A
    wrong result and ``sys.exit()`` count as failures; a ``RefusedError`` is an answer and does not count. The log has a
    traceback for the first failure of a kind, and one line for the tenth, the hundredth and so on. ``flintmq status``,
    ``flintmq plugins --trace -b HOST:PORT`` and request GET_BROKER_RUNTIME_INFO (28) show three figures for each plugin:

    * ``pluginErrors_<plugin>``: the number of failures;
    * ``pluginLastError_<plugin>``: the last error, with the call that failed;
    * ``pluginSwitchedOff_<plugin>``: the parts that are switched off, each with the reason.

    **An optional part is switched off** after ``plugin_failures_max`` failures, until the broker is restarted. Clients can make
    processors, filters and intake steps (which change or refuse messages before they are stored) fail, so for these parts only
    consecutive failures count. The consequence depends on the kind of part:

    * A dispatcher or index builder that is switched off gets no records. After the restart it gets the records that it missed,
      from the position that its ``committed()`` returns. It does not get records that retention has deleted meanwhile.
    * If a processor is switched off, requests with its codes are refused (``plugin.off``).
    * If a filter is switched off, pulls that use the filter are refused. If the broker answered these pulls, consumers would
      skip messages that the filter has not examined.
    * Listeners, timers and figures that are switched off are not called.

    Some parts of plugins are never switched off, and their failures are only counted: flush strategies, pools, parts registered
    as ``essential``, and processors that answer the request code of a built-in. Authenticators and RPC hooks are not switched
    off either, because they decide whether a request may pass: a failure refuses the request.

    **All connections share one event loop.** If a call blocks the loop for longer than ``listen.loop_blocked_warn_ms``, the log
    has a line with the loop's stack, and the figures ``loopBlockedTimes``, ``loopBlockedMaxMillis`` and ``loopBlockedBy``
    change. Run blocking work in a pool of threads (``flintmq_request_processors``) or in threads that the plugin starts. Call
    methods of the broker only on the loop's thread, unless they are documented as thread-safe. Other threads may call
    ``broker.put(...)`` and ``asyncio.run_coroutine_threadsafe(work(), broker.api.work.loop)``.
    """

    @hookspec
    def flintmq_dispatchers(self, register: RegisterDispatcher) -> None:
        """Register commit log dispatchers: ``register(name, factory, essential=False)``.

        The setting ``dispatchers`` lists the dispatchers in use, in the order of their calls.

        If an optional dispatcher raises, it loses the batch of the failed call. If the broker switches a dispatcher off, the
        dispatcher loses all batches until the broker is restarted. The method ``committed()`` of a dispatcher must return a
        position before the first lost batch, so that the next start dispatches the lost batches again. If an essential
        dispatcher raises, the broker acknowledges no messages until the dispatcher works again.

        A dispatcher whose data becomes durable later than the store's data returns its durable position from ``committed()``.
        The next start dispatches the records from that position on.

        A dispatcher that replaces ``consume_queue`` is a :class:`flintmq.core.kernel.ports.ConsumeQueues`. Consumers, retention
        and the recovery of the store read the units of its queues. Recovery runs before the store is open, so the factory of
        this dispatcher is called with a :class:`FolderContext`, which has no open store. The factories of all other dispatchers
        are called with a :class:`DispatcherContext`, which has the recovered store.

        The argument of ``dispatch`` is a batch, which has the positions of records, but not their bodies.
        ``context.bodies(batch)`` reads the bodies from the log and yields the dispatch request and the body of each record.
        """

    @hookspec
    def flintmq_flush_services(self, register: RegisterFlushStrategy) -> None:
        """Register flush strategies: ``register(FlushStrategy(...))``. The setting ``flush.strategy`` selects one strategy by
        name.

        If ``submit`` of the strategy's flush service raises or does not return a ``FlushWaiter``, the appended messages are not
        acknowledged.
        """

    @hookspec
    def flintmq_transient_store_pools(self, register: RegisterPool) -> None:
        """Register transient store pools: ``register(name, factory)``. The setting ``flush.pool`` selects one pool by name.

        The factory of a transient store pool is called with a :class:`PoolContext`."""

    @hookspec
    def flintmq_index_builders(self, register: RegisterIndexBuilder) -> None:
        """Register index builders: ``register(name, factory)``. The setting ``index.builder`` selects one index builder by
        name.

        The factory of an index builder is called with a :class:`FolderContext`. The dispatcher named ``index`` passes every
        record to the index builder, and passes records again after a recovery.

        If the data of an index builder becomes durable only after ``dispatch`` has returned, the index builder returns its
        durable position from ``committed()``. If an index builder ignores records because of their positions, it needs a method
        ``truncate(end_offset_bytes)``. This method is called with the end of the log at each start and whenever the log has
        lost records. The test kit ``flintmq.testing.index_kit`` checks an index builder."""

    @hookspec
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        """Register request processors: ``register(name, codes, factory, at="broker", pool="admin", threads=None)``.

        Each request code has one processor. The argument ``at`` names the servers that use the processor: ``broker``,
        ``nameserver`` or ``both``.

        The factory of a request processor is called with an :class:`ApiContext` and returns one of these objects:

        * a ``RequestProcessor``, which has a method ``handlers()``. The method returns a mapping of codes to functions. Each
          function takes a request and returns a ``Response``, or None if no answer is due;
        * a ``BatchProcessor``, which has a method ``process(batch)``. The method takes all requests of one read and answers
          each with ``request.channel.respond``.

        A ``Response`` of wrong types (a body that is not bytes, fields that are not text) is not sent. The client gets an error
        with the reason instead.

        The class of a processor can declare its request codes itself: decorate its methods with
        ``@handles(code, header=…, pool=…, needs=…, audited=…)`` and pass ``declared_by(TheClass)`` as the argument ``codes``.
        Access control and the audit log use these declarations. If ``codes`` has a code as a plain number, requests with this
        code wait in ``pool``, and access control refuses them unless ``acl.extra_codes`` lists the code. If a built-in declares
        the same code, the access rule, the audit and the header of the built-in apply. The test kit
        ``flintmq.testing.processor_kit`` checks a processor.

        A pool limits the number of requests that are not answered yet. Further requests are refused with SYSTEM_BUSY. There are
        two kinds of pools:

        * The broker's pools are ``send``, ``pull``, ``reply``, ``end_transaction``, ``query``, ``heartbeat``, ``client``,
          ``consumer`` and ``admin``. Their handlers run on the loop: an ``async def`` handler may wait, and a plain handler
          must not block.
        * A pool of any other name has ``threads`` threads, four by default, and the capacity ``admission.admin_queue``. The
          threads run plain handlers, several at the same time; ``async def`` handlers run on the loop. A handler in a thread
          may only read its request and return a ``Response``. It must not use ``request.channel`` or ``api``, which belong to
          the loop's thread. When the broker stops, it waits two seconds for handlers in threads. Then it logs the names of
          handlers that still run, and stops without them."""

    @hookspec
    def flintmq_message_filters(self, register: RegisterFilter) -> None:
        """Register message filters by expression type (``TAG``, ``SQL92``, your own): ``register(expression_type, factory)``.

        The factory of a message filter is called with a :class:`PluginContext` and returns a function
        ``make(expression, codes)``, where ``codes`` is the expression's set of tags codes. ``make`` returns the filter for an
        expression, and raises ``RefusedError`` for an expression that it cannot parse. The start calls ``make`` with the
        expression ``*`` to check the returned filter.

        If a filter raises for a message, the message is not delivered to that subscription, as in RocketMQ when an expression
        cannot be evaluated. Other subscriptions get it.

        The setting ``pull.property_filter`` allows SQL92 and has no effect on other types. Bit maps in the consume queue are
        used only for SQL92."""

    @hookspec
    def flintmq_authenticators(self, register: RegisterAuthenticator) -> None:
        """Register authenticators: ``register(name, factory)``. The settings ``authenticators`` for a broker and
        ``nameserver.authenticators`` for a name server list the authenticators in use.

        The factory of an authenticator is called with a :class:`PluginContext`. The authenticator's method
        ``authenticate(caller)`` returns None to let a request pass and raises ``RefusedError`` to refuse it. Every other
        exception or result also refuses the request, with the reason ``authenticator.failed``. In this case, ``flintmq status``
        shows only the type of the error, because its text may hold credentials.

        An authenticator can have a method ``reload()`` and an attribute ``reload_interval_s``. The server then calls ``reload``
        at this interval, so that it reads changed files."""

    @hookspec
    def flintmq_default_processors(self, register: RegisterDefaultProcessor) -> None:
        """Register a processor for all codes that no other processor answers: ``register(name, factory, at="broker",
        pool="admin", threads=None)``. RocketMQ's name for this is ``registerDefaultProcessor``.

        The factory of a default processor is called with an :class:`ApiContext`. It returns an object with a method
        ``handle(request)``, plain or ``async def``, which returns a ``Response``, or None if no answer is due. ``at`` names the
        servers that use it: ``broker``, ``nameserver`` or ``both``. Each server has at most one default processor. ``pool`` and
        ``threads`` have the same meaning as for request processors."""

    @hookspec
    def flintmq_connection_listeners(self, register: RegisterServerPart) -> None:
        """Register listeners for connections: ``register(name, factory, at="broker")``. All registered listeners are called.

        A listener corresponds to RocketMQ's ``ChannelEventListener``. The factory of a listener returns an object with at least
        one of these methods:

        * ``on_channel_connect(channel)`` is called for each accepted connection.
        * ``on_channel_close(channel)`` is called once at the end of each accepted connection, whichever side closed it.
        * ``on_channel_exception(channel, error)`` is called after a network error, or if the received bytes are not a valid
          frame. ``on_channel_close`` follows.
        * ``on_channel_idle(channel)`` is called before a connection is closed because it is idle.

        The methods of a connection listener are called on the event loop and must not block. Their exceptions are counted for
        the plugin and have no other effect."""

    @hookspec
    def flintmq_rpc_hooks(self, register: RegisterServerPart) -> None:
        """Register hooks around requests: ``register(name, factory, at="broker")``. All registered hooks are called, in the
        order of registration.

        An RPC hook is the server's side of RocketMQ's ``RPCHook``. The factory of an RPC hook returns an object with one or
        both of these methods:

        * ``do_before_request(request)`` is called after the authenticators have accepted a request and before its processor.
          It may change ``request.ext_fields``. A ``RefusedError`` refuses the request with the error's code and remark. Every
          other exception refuses it with SYSTEM_ERROR and is counted for the plugin.
        * ``do_after_response(request, response)`` is called with each answer before it is sent, including refusals and the
          answers to held pulls. It may change the response. If it raises an exception or makes the response invalid, the
          original response is sent, and the failure is counted for the plugin.

        The methods of an RPC hook are called on the event loop and must not block. A server with an RPC hook decodes all
        requests completely, and encodes answers in the slower general way if the hook has ``do_after_response``. This costs
        some speed of sends and pulls. A server without RPC hooks loses no speed. Puts in the same process are not requests, so
        RPC hooks do not see them."""

    @hookspec
    def flintmq_services(self, register: RegisterService) -> None:
        """Register services of a broker: ``register(name, factory)``. All registered services run.

        The factory of a service is called with an :class:`ApiContext` and returns a
        :class:`~flintmq.core.kernel.ports.service.Service`, or None if the configuration does not need the service.
        ``context.api`` is a :class:`~flintmq.core.broker.api.BrokerApi`. A service has the methods ``start()`` and ``stop()``,
        plain or ``async def``. All other methods are optional:

        * The optional methods ``ready()``, ``withdraw()``, ``persist()``, ``runtime_info()``, ``health()``, ``alarms()``,
          ``ready_words()``, ``metrics()``, ``positions_for_slaves()`` and ``follow(positions)`` are described in
          ``core/kernel/ports/service.py`` and ``core/kernel/ports/metrics.py``.
        * A service's methods ``on_stored(stored)``, ``on_answered()`` and ``on_handed_out(handed_out)`` are called for appends,
          answers and pulls (:class:`~flintmq.core.kernel.ports.follow.FollowsMessages`).
        * A service's method ``read_older(topic, queue_id, queue_offset, max_count)`` is called for pulls of messages that
          retention has deleted (:class:`~flintmq.core.kernel.ports.older.ServesOlderMessages`).

        For periodic work, call ``api.work.every(seconds, work, name)`` in ``start``. If a service works only on a master or
        only on a slave, ``api.role.run_while`` starts and stops its work.

        Services are created after the recovery of the store. They are started in the order of registration, before the broker
        listens, and stopped in the reverse order, after it has stopped listening. If ``start`` of a built-in raises, the broker
        does not start. If ``start`` of a third party's service raises, the failure is counted and logged, and the broker
        continues without this service. The same happens if a coroutine of a third party's service takes longer than ten
        seconds. The test kit ``flintmq.testing.service_kit`` checks a service."""

    @hookspec
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        """Register steps that may redirect or refuse a message before it is stored: ``register(name, factory,
        essential=True)``.

        The factory of an intake step is called with an :class:`ApiContext` and returns an
        :class:`~flintmq.core.kernel.ports.intake.IntakeStep`, or None if the configuration does not need the step. A step has
        these members:

        * ``property_names`` and ``topic_prefixes`` select the messages for which the step is called. Sends of other messages do
          not become slower.
        * ``take(message, sent)`` changes or redirects a message. It returns True if no later step is to be called for the
          message.
        * ``would_take(properties)`` and ``check_batch(shared, batch)`` are optional.

        If an intake step raises ``RefusedError``, the message is refused. Every other exception of a third party's step is
        counted and logged, and also refuses the message. A step that is registered with ``essential=False`` can be switched
        off, and is then skipped.

        Intake steps are called in the order of registration: first the built-ins (retry, transactions, delay, timer), then the
        steps of other plugins, then those of hooks marked ``trylast``. ``@hookimpl(tryfirst=True)`` puts a step before the
        built-ins. The test kit ``flintmq.testing.intake_kit`` checks an intake step."""

    @hookspec
    def flintmq_system_topics(self, register: RegisterSystemTopic) -> None:
        """Register topics that belong to a feature: ``register(SystemTopic(name, …))``.

        A :class:`~flintmq.core.kernel.ports.system_topic.SystemTopic` defines the number of queues that the first start
        creates, whether clients may write to the topic, the meaning of its tags codes, and how retention and statistics treat
        the topic."""

    @hookspec
    def flintmq_config_sections(self, register: RegisterConfigSection) -> None:
        """Register sections of the configuration that belong to the plugin: ``register(name, model)``. ``model`` is an attrs
        class.

        A broker checks each section when it starts, even if nothing uses the section. The factories of the plugin get their
        section as ``context.settings``: the section with the name under which the factory is registered, or else the only
        section of the plugin. A flush strategy with its own model gets the section ``flush.<name>``.
        """

    @hookspec
    def flintmq_cli_commands(self, register: RegisterCommand) -> None:
        """Register subcommands of ``flintmq``: ``register(name, command, help="")``.

        The argument ``command`` is a ``click.Command``, which ``@click.command()`` makes from a function, as for FlintMQ's own
        commands. A command with a parameter ``namesrv`` also gets the options for access control and TLS. If the function
        raises, ``flintmq`` prints one line that names the plugin, and ends with exit code 2."""

    @hookspec
    def flintmq_broker_starting(self, api: BrokerApi) -> None:
        """React to the start of a broker, after the broker is assembled and recovered and before it listens.

        If a built-in's implementation of this hook raises, the broker does not start. If another plugin's implementation
        raises, the failure is counted and logged, and the remaining plugins are called nevertheless."""

    @hookspec
    def flintmq_broker_fenced(self, api: BrokerApi, reason: str) -> None:
        """React to a failed sync, after which the broker acknowledges nothing until it is restarted. The broker calls this hook
        once.

        If a plugin's implementation of this hook raises, the failure is counted and logged, and the other plugins are called
        nevertheless."""
