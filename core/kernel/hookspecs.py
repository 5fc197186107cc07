"""The plugin author's manual: every hook FlintMQ calls.

A plugin is any object with functions of these names, marked with ``flintmq.core.kernel.hookspecs.hookimpl``::

    from flintmq.core.kernel.hookspecs import hookimpl

    def make_audit(context: DispatcherContext[AuditSection]) -> AuditDispatcher:
        return AuditDispatcher(context.settings.path)

    @hookimpl
    def flintmq_dispatchers(register: RegisterDispatcher) -> None:
        register("audit", make_audit)

Plugins come from the built-ins, from entry points in the group ``flintmq``, and from ``plugins:`` in the configuration:
``package.module`` for a module as the one above, ``package.module:object`` for an object or a class in one. Hooks are called
once, while a broker is assembled, and register things under names; what is called per message afterwards is a plain tuple of
callables. Two plugins may register the same name: the configuration says
which is used (``plugin/name``), and without it a third party's replaces the built-in. Every hook is optional.
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
    """The base of all contexts, and the context for the factories of message filters and authenticators.

    A factory gets its context as its only argument. ``PluginContext[MySection]`` names the type of the settings."""

    settings: S_co
    """The plugin's own section of the configuration (see ``flintmq_config_sections``), or None."""
    clock: Clock


@attrs.frozen(kw_only=True)
class ApiContext(PluginContext[S_co]):
    """The context for the factories of services, intake steps, request and default processors, connection listeners and RPC
    hooks."""

    api: BrokerApi
    """The broker, or the :class:`flintmq.programs.name_server.name_server.NameServer` for a registration at a name server."""

    if not TYPE_CHECKING:  # a type checker reports the mistake itself

        def __getattr__(self, name: str) -> object:
            raise AttributeError(f"factory(context): expected context.settings, clock or api.{name}; found '{name}'")


@attrs.frozen(kw_only=True)
class PoolContext(PluginContext[S_co]):
    """The context for the factories of transient store pools."""

    buffers: int
    """Number of buffers of the pool."""
    size_bytes: int
    """Size of each buffer, which is that of a commit log file."""


@attrs.frozen(kw_only=True)
class FolderContext(PluginContext[S_co]):
    """The context for the factories of index builders and of ``consume_queue``.

    It has no open store, because the start recovers the log with the objects that these factories make."""

    folder: StoreFolder
    """Folder of the store, before the recovery of its log."""
    filters: Mapping[str, MessageFilterFactory] = attrs.field(factory=dict)
    """Factories of message filters, keyed by expression type."""


@attrs.frozen(kw_only=True)
class DispatcherContext(FolderContext[S_co]):
    """The context for the factories of all other dispatchers."""

    store: OpenedStore
    """The recovered store, whose records will be dispatched. The factory may read from it, but not write to it."""

    def bodies(self, batch: RecordBatch) -> Iterator[tuple[DispatchRequest, bytes]]:
        """Yield each record of a batch with its body. Call it within :meth:`CommitLogDispatcher.dispatch`.

        A batch has the positions of records, but not their bytes, which most dispatchers do not need. This method reads them
        from the log; after ``dispatch`` has returned, retention may have deleted them. Bodies are yielded as they are
        stored: compressed if ``request.sys_flag & 1``.

        Raises:
            StoreError: the log has no such record any more.
        """
        from flintmq.core.record.record import decode_record  # imported lazily: most dispatchers read no bodies

        for request in batch.requests():
            start, size = request.commit_log_offset_bytes, request.message_size_bytes
            piece = self.store.commit_log.slice(start, size)
            if piece is None or len(piece) < size:
                raise StoreError(f"the record of {size} bytes at position {start} is no longer in the log")
            yield request, decode_record(piece, check_crc=False).body


DispatcherFactory = Callable[[DispatcherContext[S]], CommitLogDispatcher]
PoolFactory = Callable[[PoolContext[S]], TransientStorePool]
IndexBuilderFactory = Callable[[FolderContext[S]], IndexBuilder]
IntakeStepFactory = Callable[[ApiContext[S]], IntakeStep | None]
"""Makes an intake step, or returns None if the configuration needs none. Called before any service is started."""
FilterFactory = Callable[[PluginContext[S]], MessageFilterFactory]
"""Returns a function that makes a message filter from an expression and its set of tags codes."""
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
        """Register ``factory(context)``, which makes the processor; see ``flintmq_request_processors``."""


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
        """``factory(context)`` makes an object with ``handle(request)``; ``at`` is ``broker``, ``nameserver`` or ``both``."""


class RegisterServerPart(Protocol):
    def __call__(self, name: str, factory: Callable[..., object], *, at: str = "broker") -> None:
        """``factory(context)`` is given an :class:`ApiContext`; ``at`` is ``broker``, ``nameserver`` or ``both``."""


class RegisterService(Protocol):
    def __call__(self, name: str, factory: ServiceFactory) -> None:
        """``factory(context)`` is given an :class:`ApiContext`."""


class RegisterIntakeStep(Protocol):
    def __call__(self, name: str, factory: IntakeStepFactory[S], *, essential: bool = True) -> None:
        """``factory(context)`` is given an :class:`ApiContext`."""


class RegisterSystemTopic(Protocol):
    def __call__(self, topic: SystemTopic) -> None: ...


class RegisterConfigSection(Protocol):
    def __call__(self, name: str, model: type[object]) -> None:
        """``model`` is an attrs class. It validates the YAML section of this name, which contexts have as ``settings``."""


class RegisterCommand(Protocol):
    def __call__(self, name: str, command: click.Command, *, help: str = "") -> None:
        """``help`` replaces the command's own help."""


class FlintSpecs:
    """**Mistakes are found at the start**, and by ``flintmq config check``, which calls the factories that a start would
    call, with a store in a scratch folder. A hook is a plain function whose arguments have the names below; a hook with
    ``register`` returns None. A factory is a plain function of one argument, the context. It makes an object with the
    methods of its port in ``core/kernel/ports/``, all of them plain methods. An error names the plugin, the hook, the
    registered name, the expected thing and the found one. Built-ins are not checked at the start, but by mypy and tests.

    **Failures while the broker runs** are counted for the plugin that registered the failed part. A wrong result and
    ``sys.exit()`` are failures too; a ``RefusedError`` is an answer, not a failure. The first failure of each kind is logged
    with a traceback, the tenth, the hundredth and so on with one line. ``flintmq status``, ``flintmq plugins --trace -b
    HOST:PORT`` and request 28 show them: ``pluginErrors_<plugin>`` is the number of failures, ``pluginLastError_<plugin>``
    the last error, and ``pluginSwitchedOff_<plugin>`` lists the parts that are off, with the reasons.

    **An optional part is switched off after** ``plugin_failures_max`` **failures**, until the broker is restarted.
    After the restart, dispatchers and index builders get the records they missed (``committed()``), except those that
    retention has deleted meanwhile. While a processor is off, its request codes are refused (``plugin.off``). While a
    filter is off, its pulls are refused, so that no consumer skips messages. Listeners, timers and figures are not called.
    Clients can make processors, filters and intake steps fail: only their consecutive failures count.

    Some parts are counted, but never switched off: flush strategies, pools, ``essential`` parts, processors that replace a
    built-in's code, authenticators and RPC hooks. An authenticator or RPC hook that fails refuses the request.

    **All clients share the loop.** A call that blocks it longer than ``listen.loop_blocked_warn_ms`` is logged, with the
    stack of the loop, and counted: ``loopBlockedTimes``, ``loopBlockedMaxMillis``, ``loopBlockedBy``. Run blocking work in
    a pool of threads (``flintmq_request_processors``) or in the plugin's threads. Use the parts of the broker on the
    loop's thread only, unless they are documented as thread-safe. Other threads may call ``broker.put(...)`` and
    ``asyncio.run_coroutine_threadsafe(work(), broker.api.work.loop)``.
    """

    @hookspec
    def flintmq_dispatchers(self, register: RegisterDispatcher) -> None:
        """Register commit log dispatchers: ``register(name, factory, essential=False)``. Order is ``dispatchers:`` of the
        configuration.

        An optional dispatcher that raises loses that batch. While it is off, it loses all batches until the broker is
        restarted. It must not count them in ``committed()``. An essential dispatcher that raises stops acknowledgements.
        A dispatcher whose data becomes durable later than the store's returns its position from ``committed()``; the start
        dispatches the missing records. A dispatcher that replaces ``consume_queue`` is a
        :class:`flintmq.core.kernel.ports.ConsumeQueues`, made from a :class:`FolderContext`: consumers,
        retention and the next start read its units.

        A batch has the positions of records. Their bodies are in the log: ``context.bodies(batch)``, of the
        :class:`DispatcherContext` that the factory is given, yields each record's request and its body."""

    @hookspec
    def flintmq_flush_services(self, register: RegisterFlushStrategy) -> None:
        """Register flush strategies: ``register(FlushStrategy(...))``. ``flush.strategy`` of the configuration picks
        one by name.

        What is appended while ``submit`` raises, or returns no ``FlushWaiter``, is not acknowledged."""

    @hookspec
    def flintmq_transient_store_pools(self, register: RegisterPool) -> None:
        """Register transient store pools: ``register(name, factory)``, made of a :class:`PoolContext`. ``flush.pool`` picks
        one."""

    @hookspec
    def flintmq_index_builders(self, register: RegisterIndexBuilder) -> None:
        """Register index builders: ``register(name, factory)``, made of a :class:`FolderContext`. ``index.builder`` picks one.

        The dispatcher ``index`` of the configuration feeds it, also with records that a recovery dispatches again. If its data
        becomes durable only after ``dispatch`` has returned, it returns its position from ``committed()``. If it ignores
        records by their position, ``truncate(end_offset_bytes)`` says which records the log has lost.
        The kit ``flintmq.testing.index_kit`` checks an index builder."""

    @hookspec
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        """Register request processors: ``register(name, codes, factory, at="broker", pool="admin", threads=None)``. A
        code has one processor. ``at`` says which server has it: ``broker``, ``nameserver`` or ``both``.

        ``factory(context)`` is given an :class:`ApiContext` and makes a ``RequestProcessor``, an object with
        ``handlers()``: a mapping of each code to a function of the request that returns a ``Response``, or None when no
        answer is due. Or it makes a ``BatchProcessor`` with ``process(batch)``, which takes all requests of a read and
        answers each with ``request.channel.respond``. A wrong ``Response`` (a body that is not bytes, fields that are not
        text) is not sent: the answer says that the request failed, and why.

        A class whose methods are decorated with ``@handles(code, header=…, pool=…, needs=…, audited=…)`` declares its codes
        itself: ``codes`` is then ``declared_by(TheClass)``, and access control and the audit log follow from it. A code
        that is given by its number alone waits in ``pool`` and is refused under access control, unless
        ``acl.extra_codes`` names it; one that a built-in declares keeps what the built-in says of it.
        The kit ``flintmq.testing.processor_kit`` checks a processor.

        ``pool`` bounds how many requests may be under way; further ones are SYSTEM_BUSY. The pools ``send``, ``pull``,
        ``reply``, ``end_transaction``, ``query``, ``heartbeat``, ``client``, ``consumer`` and ``admin`` are the broker's:
        their handlers run on the loop, where ``async def`` ones may wait and plain ones must not block. A pool of any
        other name has ``threads`` threads (four, if it is left out), which run plain handlers, several at a time; ``async
        def`` ones stay on the loop. Its capacity is ``admission.admin_queue``. A handler in a thread reads its request
        and returns a ``Response``; ``request.channel`` and ``api`` belong to the loop. A stop waits two seconds
        for handlers in threads, then names those that are stuck and leaves them behind."""

    @hookspec
    def flintmq_message_filters(self, register: RegisterFilter) -> None:
        """Register message filters by expression type (``TAG``, ``SQL92``, your own): ``register(expression_type, factory)``.

        ``factory(context)`` returns a function ``make(expression, codes)`` that makes the filter of an expression. ``make``
        raises ``RefusedError`` for an expression that does not parse; it is called with ``*`` at the start, to see what it
        makes. A message for which a filter raises is not delivered to that subscription, as in RocketMQ when an expression
        cannot be evaluated; others get it.

        Only SQL92 needs ``pull.property_filter``, and only of SQL92 bit maps are looked at."""

    @hookspec
    def flintmq_authenticators(self, register: RegisterAuthenticator) -> None:
        """Register authenticators: ``register(name, factory)``. ``authenticators:`` of the configuration lists a
        broker's in force, ``nameserver.authenticators`` a name server's.

        ``authenticate(caller)`` raises ``RefusedError`` to refuse and returns None to let a request pass. Whatever else
        it raises or returns refuses the request, too (``authenticator.failed``); figures then show the error's type
        only. One with ``reload()`` and ``reload_interval_s`` is asked to read its files again at that interval."""

    @hookspec
    def flintmq_default_processors(self, register: RegisterDefaultProcessor) -> None:
        """Register a processor of all codes that no other processor answers: ``register(name, factory, at="broker",
        pool="admin")``.

        RocketMQ's ``registerDefaultProcessor``. The factory is given an :class:`ApiContext` and makes an object
        with ``handle(request)``, plain or ``async def``, that returns a ``Response``, or None if no answer is due. ``at``
        says which server has it: ``broker``, ``nameserver`` or ``both``; each has one at most. ``pool`` and ``threads`` are
        as of request processors."""

    @hookspec
    def flintmq_connection_listeners(self, register: RegisterServerPart) -> None:
        """Register listeners for connections: ``register(name, factory, at="broker")``. All that are registered are called.

        RocketMQ's ``ChannelEventListener``. The factory makes an object with some of

        * ``on_channel_connect(channel)``, called with each connection that is taken;
        * ``on_channel_close(channel)``, called once for each of these, whichever side ended it;
        * ``on_channel_exception(channel, error)``: of the network, or bytes that are no frame; close follows;
        * ``on_channel_idle(channel)``, called before a connection is closed because nothing happens on it.

        The loop calls them: they must not block. What they raise is counted for the plugin and changes nothing."""

    @hookspec
    def flintmq_rpc_hooks(self, register: RegisterServerPart) -> None:
        """Register hooks around requests: ``register(name, factory, at="broker")``. All that are registered are called,
        in their order.

        The server's side of RocketMQ's ``RPCHook``. The factory makes an object with one or both of

        * ``do_before_request(request)``, called when the authenticators let a request pass, before its processor. A
          ``RefusedError`` refuses it with that code and remark; anything else that is raised refuses it with SYSTEM_ERROR
          and is counted for the plugin. It may change ``request.ext_fields``;
        * ``do_after_response(request, response)``, called with each answer before it is sent, refusals and answers to held
          pulls included. It may change the response, but not to something that cannot be sent; what it raises is counted.

        The loop calls them: they must not block. A server without any pays nothing; with one, requests are read and (where
        there is an ``after``) answered the general way, which costs some of the speed of sends and pulls. Puts in the same
        process are no requests."""

    @hookspec
    def flintmq_services(self, register: RegisterService) -> None:
        """Register services of a broker: ``register(name, factory)``. All that are registered run.

        ``factory(context)`` makes a :class:`~flintmq.core.kernel.ports.service.Service`: an object with ``start()`` and
        ``stop()``, plain or ``async def``. ``ready()``, ``withdraw()``, ``persist()``, ``runtime_info()``, ``health()``,
        ``alarms()``, ``ready_words()``, ``metrics()``, ``positions_for_slaves()`` and ``follow(positions)`` are optional.
        The factory returns None if the configuration needs no such service. The optional methods
        ``on_stored(stored)``, ``on_answered()`` and ``on_handed_out(handed_out)`` are called for appends, answers and pulls
        (:class:`~flintmq.core.kernel.ports.follow.FollowsMessages`). ``read_older(topic, queue_id, queue_offset,
        max_count)`` is called for pulls of messages that retention has deleted
        (:class:`~flintmq.core.kernel.ports.older.ServesOlderMessages`). ``context.api`` is a
        :class:`~flintmq.core.broker.api.BrokerApi`; periodic work is ``api.work.every(seconds, work, name)`` in ``start``.
        A service for masters or for slaves starts and stops its work with ``api.role.run_while``.

        Services are made after recovery, started in the order of their registration before the broker listens, and stopped
        in the reverse order after it has stopped listening. The broker does not start if a built-in raises in ``start``. The
        failure of another service is counted and logged, and the broker continues without the service. A coroutine that
        waits for longer than ten seconds is such a failure.
        The kit ``flintmq.testing.service_kit`` checks a service."""

    @hookspec
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        """Register steps that may redirect or refuse a message before it is stored: ``register(name, factory,
        essential=True)``.

        ``factory(context)`` makes an :class:`~flintmq.core.kernel.ports.intake.IntakeStep`: an object with
        ``property_names`` and ``topic_prefixes``, which select its messages, and ``take(message, sent)``, which changes or
        redirects the message and returns whether the chain ends with it. ``would_take(properties)`` and
        ``check_batch(shared, batch)`` are optional. The factory returns None if the configuration needs no step. A
        ``RefusedError`` refuses the message. Any other error of a third party's step is counted and logged, and refuses the
        message too. With ``essential=False``, a step that is switched off is skipped. Other messages cost nothing.

        The order is that of registration: the built-ins (retry, transactions, delay, timer), then others, then
        ``trylast`` ones. ``@hookimpl(tryfirst=True)`` puts a step in front of the built-ins.
        The kit ``flintmq.testing.intake_kit`` checks an intake step."""

    @hookspec
    def flintmq_system_topics(self, register: RegisterSystemTopic) -> None:
        """Register topics that belong to a feature: ``register(SystemTopic(name, …))``.

        A :class:`~flintmq.core.kernel.ports.system_topic.SystemTopic` says how many queues the topic has from the first start
        on, whether clients may write to it, what its tags codes mean, and what retention and statistics do with it."""

    @hookspec
    def flintmq_config_sections(self, register: RegisterConfigSection) -> None:
        """Register sections of the configuration that belong to the plugin: ``register(name, model)``, an attrs class.

        A section is checked at the start, even if nothing uses it. The contexts of the plugin's factories have the section
        of the registered name as ``context.settings``, or else the plugin's only section. A flush strategy with a
        ``settings_model`` gets ``flush.<name>``."""

    @hookspec
    def flintmq_cli_commands(self, register: RegisterCommand) -> None:
        """Register subcommands of ``flintmq``: ``register(name, command, help="")``. The command is a ``click.Command``,
        which ``@click.command()`` makes of a function; FlintMQ's own commands are made in the same way. A command with a
        parameter ``namesrv`` also gets the options for access control and TLS. If the function raises, ``flintmq`` prints
        one line that names the plugin, and ends with exit code 2."""

    @hookspec
    def flintmq_broker_starting(self, api: BrokerApi) -> None:
        """React when the broker is assembled and recovered, but does not listen yet. As with the hooks below, a plugin
        that raises here is counted and named, and the others are called all the same."""

    @hookspec
    def flintmq_broker_fenced(self, api: BrokerApi, reason: str) -> None:
        """React when a sync has failed: the broker acknowledges nothing until it is restarted. Called once."""
