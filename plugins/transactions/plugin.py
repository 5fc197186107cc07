"""The plugin ``transactions``: the hooks by which transactions join the broker."""

from __future__ import annotations

from flintmq.config.rocketmq.system_topics import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from flintmq.core.kernel.hookspecs import (
    RegisterIntakeStep,
    RegisterProcessor,
    RegisterService,
    RegisterSystemTopic,
    hookimpl,
)
from flintmq.core.kernel.ports import SystemTopic
from flintmq.core.kernel.ports.processor import declared_by
from flintmq.plugins.transactions.intake_step import TransactionStep
from flintmq.plugins.transactions.processor import EndTransactionProcessor, ResumeCheckProcessor
from flintmq.plugins.transactions.service import TransactionsService


class TransactionsPlugin:
    """Messages that are delivered when their producer commits, and never when it rolls back."""

    plugin_name = "transactions"

    @hookimpl
    def flintmq_system_topics(self, register: RegisterSystemTopic) -> None:
        register(SystemTopic(TRANS_HALF_TOPIC, holds_messages=True))
        register(SystemTopic(TRANS_OP_HALF_TOPIC))
        register(SystemTopic(TRANS_CHECK_MAX_TIME_TOPIC))

    @hookimpl
    def flintmq_services(self, register: RegisterService) -> None:
        register("transactions", TransactionsService)

    @hookimpl
    def flintmq_intake_steps(self, register: RegisterIntakeStep) -> None:
        register("transactions", TransactionStep)

    @hookimpl
    def flintmq_request_processors(self, register: RegisterProcessor) -> None:
        register(
            "end_transaction",
            declared_by(EndTransactionProcessor),
            lambda broker: EndTransactionProcessor(
                broker.state, broker.state.service(TransactionsService).transactions
            ),
        )
        register(
            "resume_check",
            declared_by(ResumeCheckProcessor),
            lambda broker: ResumeCheckProcessor(broker.state, broker.state.service(TransactionsService).transactions),
        )
