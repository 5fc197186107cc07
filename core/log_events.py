"""Names what each line of the log is about, for programs: a stable id, and names for the values in its text.

Lines are logged through the standard library's loggers as text and values, wherever they come from. Their ids stand here, so that
a text may change and its id stay. A filter of FlintMQ's own loggers gives each record two attributes before any handler sees it:
``event``, the id, and ``fields``, its values by name. docs/log-events.md lists them; a test finds lines without an id.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias

from flintmq.core.client_log import client_log as gated_log
from flintmq.core.client_log import escaped_log, printable

ExcInfo: TypeAlias = bool | BaseException | None

EVENTS: Final[Mapping[str, str]] = {
    "the accounts stay as they are: %s": "acl.not_read_again error",
    "requests are taken only from %s (acl.compat: safe)": "acl.only_from addresses",
    "%d accounts read again": "acl.read_again accounts",
    "who=%s what=%s %s from=%s result=%s": "audit.act who what fields client result",
    "the address of listen.advertised_host %s is not known here: %s; message ids hold another": "broker.address_unknown host error",
    "listening at %s without access control: anyone who reaches it may do everything (listen.insecure)": "broker.exposed host",
    "broker %s listens on %s, store %s": "broker.listens broker address store",
    "broker %s stopped": "broker.stopped broker",
    "broker %s is left out: it is registered at '%s', which is not HOST:PORT": "client.broker_left_out broker address",
    "broker %s does not answer, its queues wait: %s": "client.broker_away broker error",
    "broker %s answers again, after %.1f s": "client.broker_back broker duration_s",
    "%s takes longer than consume_timeout_s and is sent back": "client.consume_timeout first_message",
    "the check of transaction %s failed; the broker will ask again": "client.check_failed message",
    "%s asks about a transaction of producer group %s, which is not here": "client.check_not_ours broker group",
    "listeners of %s take longer than close_timeout_s: their messages come again": "client.close_timeout group",
    "consuming %d messages of %s from %s on failed": "client.consume_failed messages queue first_message",
    "%s is left to others, this process ends: %s": "client.left_to_others message reason",
    "%s was not made a dead letter: %s": "client.no_dead_letter message error",
    "%d listeners of %s are abandoned: their messages come again": "client.abandoned listeners group",
    "a listener of %s still has a message of %s, which is abandoned": "client.abandoned group queue",
    "worker %d of %s was cancelled, another one takes its place": "client.worker_cancelled worker group",
    "a listener of %s goes on at %s although it was cancelled": "client.not_cancelled group queue",
    "%s is closed, these tasks go on although they were cancelled: %s": "client.not_cancelled client tasks",
    "no offset of %s was loaded for %s": "client.offset_not_loaded queue group",
    "%s is given up, the offset store has failed": "client.offset_not_stored queue",
    "%s is still locked, its lock was not renewed: %s": "client.not_locked queue error",
    "request %d that %s pushed failed: %s": "client.pushed_failed code server error",
    "the process ends, and waits %g s at most for functions of clients: %s": "client.exit_waits limit_s threads",
    "the process ends, functions of clients have not returned: %s": "client.exit_busy threads",
    "the event loop of all clients does not end: a function that it called does not return": "client.loop_busy",
    "a callback would have ended the loop of all clients": "client.loop_kept",
    "rebalance of %s failed": "client.rebalance_failed group",
    "no rebalance of %s for %s": "client.not_rebalanced topic group",
    "the pull of %s has ended, the queue is given up and may begin again": "client.pull_ended queue",
    "a worker of %s failed at %s of %s": "client.worker_failed group first_message queue",
    "%s failed": "client.work_failed work",
    "%s asks about a transaction whose half message is damaged; it will ask again: %s": "client.check_damaged broker reason",
    "no heartbeat to %s: %s": "client.no_heartbeat broker error",
    "%s was dropped without close(), and is closed now": "client.dropped client",
    "no route of %s yet: %s": "client.no_route topic error",
    "no rebalance of %s for %s: %s": "client.not_rebalanced topic group error",
    "%s was not sent back, it is tried again here: %s": "client.not_sent_back message error",
    "%s at offset %d of %s cannot be read nor sent back, it is passed over: %s": "client.passed_over message queue_offset queue error",
    "%s at offset %d of %s cannot be read and is not given to the listener: %s": "client.unreadable message queue_offset queue reason",
    "%s is given up, it was not unlocked: %s": "client.not_unlocked queue error",
    "%s did not learn that this client leaves: %s": "client.not_unregistered broker error",
    "offset %d of %s is illegal: going on at %d": "client.offset_illegal asked_offset queue now_offset",
    "%s is given up, its offset was not stored: %s": "client.offset_not_stored queue error",
    "a pull failed, the next poll tries again: %s": "client.pull_failed error",
    "pulling %s failed: %s": "client.pull_failed queue error",
    "rebalance of %s failed: %s": "client.rebalance_failed group error",
    "a reply from %s came too late, or answers nothing": "client.reply_too_late sender",
    "order configuration of topic %s: left out is %s; write broker-a:4": "client.order_entry topic entries",
    "the route of %s is gone: %s": "client.route_gone topic error",
    "traces of %s are lost: %s": "client.traces_lost group error",
    "%s was not given up in order": "client.not_released queue",
    "background work %s failed": "client.task_failed task",
    "transaction %s: the broker did not learn its end and will ask: %s": "client.transaction_end_unknown message error",
    "closing %s: %s": "connection.closed client reason",
    "connections wait to be accepted: no descriptor is free that one may have (ulimit -n)": "connection.no_descriptor",
    "a connection could not be accepted: %s": "connection.not_accepted error",
    "closing %s: plain, and this port is encrypted (listen.tls.mode, ha.tls)": "connection.plain client",
    "%s sent a frame that cannot be read: %s": "connection.unreadable client error",
    "connections wait to be accepted: %s": "connection.waits reason",
    "messages of delay levels %s are due by RocketMQ's own levels now: the store does not say which its "
    "broker had; if others, do it again with --set delay.levels=… as the broker's (messageDelayLevel)": "delay.levels_guessed levels",
    "delay levels of earlier messages are not known: %s": "delay.levels_unknown error",
    "delay level %d goes on at queue offset %d instead of %d": "delay.offset_moved level now_offset before_offset",
    "spans cannot be pushed to %s: %s": "tracing.not_pushed endpoint error",
    "spans are pushed to %s again": "tracing.pushed_again endpoint",
    "spans are dropped: %d wait already (tracing.queue_max)": "tracing.dropped waiting",
    "a login from %s as %s was refused": "console.login_refused client who",
    "%s logged in from %s": "console.logged_in who client",
    "%s at %s: %s of %s: %s": "console.changed who client what subject result",
    "the audit file %s is not written: %s": "console.audit_not_written file error",
    "the history file %s is not read: %s": "console.history_not_read file error",
    "the history file %s is not written: %s": "console.history_not_written file error",
    "the page %s failed": "console.page_failed page",
    "the console at %s is not encrypted: others may read logins and pages on the way": "console.plain address",
    "the console at %s is open: the cluster has no access control, so anyone who reaches it may do everything": "console.open address",
    "the console ended with exit code %d; it is started again in %g s": "console.ended exit_code pause_s",
    "message %s for %s is a dead letter in %s: %s [delivery.dead_letter]": "delivery.dead_letter message meant_for topic reason",
    "%d messages of delay level %d have expired with their log files [delivery.gone]": "delivery.gone messages level",
    "the message that waited at position %d is lost: %s [delivery.gone]": "delivery.gone log_position reason",
    "timers at queue offsets %d to %d have expired with their log files [delivery.gone]": "delivery.gone first_offset last_offset",
    "message %s for %s is not delivered: %s; it stays in the log at position %d until that expires "
    "[delivery.kept]": "delivery.kept message meant_for reason log_position",
    "the disk is full, writes are refused: %s; see %s": "disk.full measured key",
    "the disk is nearly full, and no commit log file can be deleted": "disk.nearly_full",
    "nothing is deleted for want of space there, nor are writes refused: %s": "disk.not_measured error",
    "there is room on the disk again, writes are accepted": "disk.room_again",
    "dispatch goes on": "dispatch.goes_on",
    "held pulls are not woken": "dispatch.not_woken",
    "dispatch stands still %s: %s": "dispatch.stands_still until error",
    "the feed of an earlier run cannot be removed; readers of the store's files must not trust it: %s": "feed.not_removed error",
    "a consumer filter in the file is left out: %s": "filter.left_out error",
    "there are %d counters of topics and groups: no more are made": "stats.full counters",
    "message %s for %s is dropped: the topic was deleted while it waited [delivery.no_topic]": "delivery.no_topic message topic",
    "a subscription is not kept: %s": "filter.not_kept error",
    "the expression of group %s for topic %s is not kept: there are too many": "filter.no_room group topic",
    "a flush waiter's callback raised: %r": "flush.callback_failed callback",
    "%s has ended, the store is fenced: %s": "flush.ended doing error",
    "group commit is fenced, %d waiters refused: %s": "flush.fenced waiters error",
    "a sync still hangs %.1f s after the stop was asked for: it is left alone": "flush.hangs timeout_s",
    "%s waits for a descriptor and tries again: %s": "flush.no_descriptor service error",
    "consumer group %s created": "group.created group",
    "consumer group %s is not on disk yet: %s": "group.not_on_disk group error",
    "the broker stops with %d bytes of the log not landed; the next start goes on with them": "landing.behind_at_stop lag_bytes",
    "landing stopped by an unexpected error": "landing.failed",
    "%s has landed and is not there any more; who removed it?": "landing.file_missing path",
    "landing goes on at position %d of %d": "landing.goes_on start_position end_position",
    "%d bytes of the log were deleted before they could land; landing goes on at %d, the gap is in the "
    "manifest": "landing.lost lost_bytes position",
    "landing has stopped: %s": "landing.stopped reason",
    "landing failed and is tried again: %s": "landing.tried_again error",
    "everybody is served late: half of all looks at the event loop waited for %d ms or longer; it is mostly busy with %s": (
        "loop.slow median_ms by"
    ),
    "%d lines of %s are lost: %s": "log.lost lines output reason",
    "nobody is served for more than %d ms%s: the event loop is busy with %s": "loop.blocked warn_ms often by",
    "a request for %s could not be answered": "metrics.not_answered path",
    "figures cannot be pushed to %s: %s": "metrics.not_pushed endpoint error",
    "figures are pushed to %s again": "metrics.pushed_again endpoint",
    "a request for metrics could not be taken: %s": "metrics.not_taken error",
    "name server listens on %s": "namesrv.listens address",
    "name server %s stopped": "namesrv.stopped address",
    "consumer offset of %s in %s queue %d goes back from %d to %d (%s)": "offset.back group topic queue_id before_offset now_offset client",
    "the consumer offset of %s in %s queue %d is moved from %d back to the queue's end, %d: a crash has "
    "taken the messages between": "offset.cut group topic queue_id before_offset now_offset",
    "a task raised %s, which would end the process; it goes on": "plugin.task_exits error",
    "%s raised in %s": "plugin.failed plugin doing",
    "%s raised in %s for the %dth time: %s": "plugin.failed_again plugin doing times error",
    "disabled_plugins names what is not installed: %s": "plugin.not_installed plugins",
    "%s: its %s is off until the broker is restarted: it %s": "plugin.off plugin what reason",
    "%s: its %s is off for %.0f s: it %s": "plugin.off_for_a_while plugin what off_s reason",
    "%s: its %s is tried again": "plugin.tried_again plugin what",
    "pool %s: a handler does not return, its thread is left behind: %s": "pool.stuck pool place",
    "no record of it: %s": "pull.move_not_recorded error",
    "%s (%s) asked for queue offset %d of %s queue %d and is sent to %d": "pull.offset_moved group client asked_offset topic queue_id now_offset",
    "consume queues are not synced any more; the next start rebuilds them": "queues.given_up",
    "consume queues could not be synced (they will be rebuilt from the log if need be): %s": "queues.not_synced error",
    "name server %s: %s; trying again": "registration.failed name_server error",
    "name server %s did not learn that the broker stops: %s": "registration.not_withdrawn name_server error",
    "the order configuration of name server %s: %s": "registration.order_config name_server error",
    "name server %s refused the registration: %s": "registration.refused name_server remark",
    "following the master failed": "replication.failed",
    "following the master at %s from %d on": "replication.following master position",
    "the log was cut from %d to %d, where the master's ends; what was cut is in %s": "replication.log_cut before_position now_position quarantine",
    "replication does not run since the role changed to %s: %s": "replication.role_not_taken role error",
    "the master is not followed: %s": "replication.not_following reason",
    "slave %s follows from %d on": "replication.slave_follows slave position",
    "slave %s is gone, at %d": "replication.slave_gone slave position",
    "slave %s: %s": "replication.slave_refused slave reason",
    "%d queues of %d topics that the master does not have are removed, such as %s": "replication.queues_removed queues topics topic",
    "topics, groups and offsets of the master at %s: %s": "replication.tables_missing master error",
    "the tables of the master at %s cannot be taken over: %s": "replication.tables_wrong master error",
    "request %d of %s failed: %s": "request.failed code client error",
    "request %d of a client in this process failed": "request.failed_in_process code",
    "%s deleted": "retention.deleted path",
    "%s goes: %s": "retention.file_goes path reason",
    "%s could not be deleted, %d files wait: %s": "retention.not_deleted path waiting error",
    "a file of %s queue %d could not be deleted: %s": "retention.queue_not_deleted topic queue_id error",
    "%s queue %d removed: all of its messages are deleted": "retention.queue_removed topic queue_id",
    "group %s of store.keep_for_groups has stored no offset: nothing is kept for it": "retention.keeps_nothing group",
    "commit log file %020d, %s: %s; %s": "retention.unread file reason group what",
    "commit log file %020d goes before it has expired, because the disk is nearly full: %d messages, the newest is %s; %s": (
        "retention.deleted_unexpired file messages age groups"
    ),
    "commit log file %020d was kept for a group and is deleted all the same: %s; %s; see %s": (
        "retention.bound_won file group measured key"
    ),
    "broker at %s did not register for %d s: forgotten": "route.expired address expiry_s",
    "broker %s (%s, id %d) registered": "route.registered broker address broker_id",
    "an append of %d sends failed": "send.append_failed sends",
    "sends are refused: %s; %d since %.0f s": "sends.refused refusal refused since_s",
    "sends are taken again: %d were refused [%s]": "sends.taken_again refused reason",
    "a send of %s failed": "send.failed client",
    "looking into %d sends failed": "send.intake_failed sends",
    "no executor has answered in %.0f s: not known whether flintmq is installed there": "spark.executors_silent seconds",
    "columns are not pruned in this session, name them with the option columns: %s": "spark.columns_not_pruned error",
    "%s; failOnDataLoss=false: going on": "spark.data_loss what",
    "%s; failOnDataLoss=false: going on with what there is": "spark.data_loss what",
    "%s is away; the query goes on at %d when it is back": "spark.queue_away queue queue_offset",
    "%s: the topic was deleted and created again; it is read from its first message": "spark.topic_remade queue",
    "%s: its broker does not answer a question: %s": "spark.unanswered queue error",
    "group %s: the offset of %s was not committed: %s": "spark.not_committed group queue error",
    "readers of the store's files do not know this broker's name yet: %s": "spark.name_not_written error",
    "%s: no record at %d; going on with the next one that a consume queue names": "spark.record_missing path position",
    "records cannot be read in bulk and are read one by one": "store.bulk_read_failed",
    "commit log cut at %d (%s, %s); what was cut is in %s": "store.cut position what reason quarantine",
    "commit log damaged from %d to %d (%s); records follow, and the log goes on with them; what was "
    "there is in %s": "store.damaged start_position end_position reason quarantine",
    "%s is put back as it was noted: %s": "store.epochs_put_back path reason",
    "the index has lost files or entries that were noted: it is built again from the log": "store.index_lost",
    "%d queues have lost units that were noted, and are built again from the log: %s": "store.queues_lost count queues",
    "queue %d of %s ends at %d and went to %d: the messages between are not in the log; it goes on behind them": "store.queue_goes_on queue topic end_offset noted_offset",
    "the commit log begins at position %d, and began at %d when that was noted: the files between are deleted, or lost": "store.log_begins_later position noted_position",
    "%s cannot be read, so that nothing contradicts files that were lost: %s": "store.ends_unreadable path error",
    "%s is missing, although the last broker did not stop in order: a recovery begins": "store.abort_missing path",
    "it could not be noted how far the store's files go: %s": "store.ends_not_noted error",
    "%s is not as it was noted: %s since the last broker wrote it": "store.file_changed path what",
    "%s: %s; %s%s": "store.table_lost path reason taken quarantine",
    "%d topics are made again, as wide as their queues with messages: %s": "store.topics_made_again count topics",
    "%d topics have messages and are not in the table of topics; make them, or delete them: %s": "store.topics_unknown count topics",
    "%s is empty: a crash came while it was made": "store.empty_file path",
    "%s is empty: a crash came while it was made; it is made again": "store.empty_file_made_again path",
    "%s is missing: its name was lost in a crash, or it was removed": "store.missing_file path",
    "no room for a commit log file in %s: %s": "store.no_room folder error",
    "the store could not be left clean; the next start will recover: %s": "store.not_clean error",
    "the log could not be made durable: %s": "store.not_durable error",
    "the log is on disk up to %d of %d only; the next start will recover": "store.not_flushed flushed_position written_position",
    "recovered after %s: %d records walked, dispatch goes on from position %d, log ends at %d": "store.recovered after records dispatched_position end_position",
    "dispatchers get again what they lack, from position %d to %d": "store.replay start_position end_position",
    "%s has what lies below position %d, but the log begins at %d: the records between are deleted; "
    "raise store.file_reserved_hours, or keep it on": "store.replay_gone dispatcher committed_position min_position",
    "%s%s": "store.slow what more",
    "the members of consumer group %s agree again": "subscription.agreed group",
    "client id %s is used by several members of consumer group %s at the same time, so each message may be "
    "consumed several times: %s; give each process an id of its own": "client.id_shared client_id group addresses",
    "%s: the registrations are not known again: %s; consumers register within 30 s": "consumers.not_known path reason",
    "locks of group %s are not known again: %s": "consumers.locks_not_known group reason",
    "the registrations of consumers are not written: %s": "consumers.not_written error",
    "the registrations of %d consumer groups are not kept: there are too many": "consumers.too_many groups",
    "consumers that did not come back after the start are gone: %s%s": "consumers.not_back consumers more",
    "members of consumer group %s contradict each other, so it may miss messages: %s": "subscription.contradiction group contradictions",
    "%s %s after %.0f s; it is started again in %g s": "supervisor.ended broker how served_s pause_s",
    "%s has not ended within %.0f s and is killed; its store recovers": "supervisor.killed broker timeout_s",
    "%s printed: %s": "supervisor.printed process line",
    "%s serves again at %s, as process %d": "supervisor.serves_again broker address pid",
    "the newest %s are lost: %s": "table.lost table error",
    "the newest positions of the service %s are lost: %s": "table.not_written service error",
    "the consumer filters are not written: %s": "filters.write_failed error",
    "the key-value configuration is not written: %s": "table.kv_write_failed error",
    "%s cannot be written, and what was written last counts after a crash: %s": "table.write_failed table error",
    "%s can be written again": "table.written_again table",
    "the newest notes on tags codes are lost: %s": "tags_codes.not_written error",
    "a broker without a disk has ended: %s": "testing.broker_ended error",
    "the timer '%s' failed; it goes on in %s s": "timer.failed timer wait_s",
    "the timers are read again from the queue: %s": "timer.read_again error",
    "the certificate stays as it is: %s": "tls.not_read_again error",
    "certificate %s read again": "tls.read_again path",
    "topic %s created with %d queues for %s": "topic.created topic queues client",
    "topic %s, of which the master sent messages: %s": "topic.not_made topic error",
    "topic %s is not on disk yet: %s": "topic.not_on_disk topic error",
    "transactions are checked again later: %s": "transaction.checked_later error",
    "half message %d of %s for %s is given up after %d checks [transaction.given_up]": "transaction.given_up half_offset group topic checks",
    "half messages from %d on are no longer in the log [transaction.gone]": "transaction.gone half_offset",
    "half message %d cannot become a dead letter either: %s; it stays in the log at position %d until "
    "that expires [transaction.kept]": "transaction.kept half_offset error log_position",
    "%s could not be asked: %s": "transaction.not_asked client error",
    "a transaction of %s is not ended: %s": "transaction.not_ended client error",
    "a transaction of %s was not ended: %s": "transaction.not_ended group error",
    "half message %d cannot be put again: %s": "transaction.not_put_again half_offset error",
    "op records of half messages %s were lost in a crash and are put again": "transaction.op_lost half_offsets",
}
"""The text of a line → its id, then the names of its values."""

EVENTS_OF: Final[Mapping[tuple[str, str], str]] = {
    ("flintmq.acl", "%s: %s"): "acl.file_exposed path problem",
    ("flintmq.client", "%s: %s"): "client.work_failed work error",
    ("flintmq.client", "%s failed"): "client.work_failed work",
    ("flintmq.config", "%s"): "config.ignored entry",
    ("flintmq.console", "%s"): "console.not_started error",
    ("flintmq.store", "%s"): "store.fenced reason",
    ("flintmq.supervisor", "%s: %s"): "supervisor.failed broker error",
}
"""The same for texts that several loggers have."""

LOGGERS: Final = (
    "flintmq.acl",
    "flintmq.audit",
    "flintmq.broker",
    "flintmq.client",
    "flintmq.config",
    "flintmq.console",
    "flintmq.core.broker.consumers",
    "flintmq.core.broker.groups",
    "flintmq.core.broker.offsets",
    "flintmq.core.broker.topics",
    "flintmq.core.broker.redirected_message",
    "flintmq.core.route.route_manager",
    "flintmq.flush",
    "flintmq.ha",
    "flintmq.landing",
    "flintmq.log",
    "flintmq.namesrv",
    "flintmq.plugins",
    "flintmq.plugins.delay.schedule",
    "flintmq.plugins.filters.consumer_filter_file",
    "flintmq.plugins.filters.consumer_filters",
    "flintmq.plugins.timer.timer_service",
    "flintmq.plugins.transactions.check",
    "flintmq.plugins.transactions.transactional_messages",
    "flintmq.remoting",
    "flintmq.security",
    "flintmq.spark",
    "flintmq.store",
    "flintmq.supervisor",
    "flintmq.testing",
    "flintmq.tls",
)
"""FlintMQ's loggers."""


class EventLog:
    """A logger whose calls say what their lines are about: an id, a text, and the values of the text as keywords. Any thread.

    ``log.warning("acl.not_read_again", "the accounts stay as they are: %(error)s", error=error)`` writes the text with its values,
    as the logger itself would. The record has the attributes ``event``, the id, and ``fields``, the values by name. Ids and texts
    are literals, and the names in a text are those of the keywords; tests/core/test_log_events.py holds that. ``exc_info`` is an
    exception to write with its traceback, or whether to write the one that is handled.

    Args:
        logger: what the lines go to; its level, filters and handlers hold.
    """

    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line for developers."""
        if self._logger.isEnabledFor(logging.DEBUG):
            self._write(logging.DEBUG, event, text, exc_info, fields)

    def info(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line about what happens as it should."""
        if self._logger.isEnabledFor(logging.INFO):
            self._write(logging.INFO, event, text, exc_info, fields)

    def warning(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line about what somebody may have to look at."""
        if self._logger.isEnabledFor(logging.WARNING):
            self._write(logging.WARNING, event, text, exc_info, fields)

    def error(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line about what has failed."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._write(logging.ERROR, event, text, exc_info, fields)

    def exception(self, event: str, text: str, /, *, exc_info: ExcInfo = True, **fields: object) -> None:
        """Write a line about what has failed, with the traceback of the exception that is handled."""
        if self._logger.isEnabledFor(logging.ERROR):
            self._write(logging.ERROR, event, text, exc_info, fields)

    def critical(self, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line about what keeps the server from its work."""
        if self._logger.isEnabledFor(logging.CRITICAL):
            self._write(logging.CRITICAL, event, text, exc_info, fields)

    def log(self, level: int, event: str, text: str, /, *, exc_info: ExcInfo = None, **fields: object) -> None:
        """Write a line of a level of :mod:`logging`."""
        if self._logger.isEnabledFor(level):
            self._write(level, event, text, exc_info, fields)

    def _write(self, level: int, event: str, text: str, exc_info: ExcInfo, fields: Mapping[str, object]) -> None:
        extra = {"event": event, "fields": fields}
        values = (fields,) if fields else ()
        self._logger.log(
            level, text, *values, exc_info=exc_info, extra=extra, stacklevel=3
        )  # the place is the caller's


def event_log(name: str) -> EventLog:
    """Return the log of that name. The control characters of its lines are escaped, also in a traceback."""
    return EventLog(escaped_log(name))


def client_log(name: str) -> EventLog:
    """Return the log of that name. Strangers cause its lines, so they are cut, and below ERROR a kind of line comes at most
    :data:`~flintmq.core.client_log.LINES_PER_S` times a second, the next one saying how many were left out."""
    return EventLog(gated_log(name))


class _Names(logging.Filter):
    """Gives records their ids; lets all of them pass. Any thread."""

    def filter(self, record: logging.LogRecord) -> bool:
        if hasattr(record, "event"):
            return True
        text = str(record.msg)
        event, *names = (EVENTS.get(text) or EVENTS_OF.get((record.name, text), "")).split() or [""]
        values = record.args if isinstance(record.args, tuple) else ()
        record.event = event
        record.fields = dict(zip(names, values, strict=False))
        return True


_NAMES: Final = _Names()


def name_events() -> None:
    """Have every line of FlintMQ's loggers carry its id, and be escaped, from now on. Idempotent; servers and clients do it when
    they start."""
    for name in LOGGERS:
        filters = logging.getLogger(name).filters
        if _NAMES not in filters:
            filters.insert(0, _NAMES)  # before the one that puts a line together for good
        escaped_log(name)


class JsonFormatter(logging.Formatter):
    """Writes each record as a line of JSON: time, level, logger, event, message, fields, error. Any thread.

    Args:
        broker: written with each line, where several processes write to one log; empty for none.
    """

    def __init__(self, broker: str = "") -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields: Mapping[str, object] = getattr(record, "fields", {})
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "event": getattr(record, "event", ""),
            "message": record.getMessage(),
            "fields": {name: _plain(value) for name, value in fields.items()},
        }
        if self._broker:
            told["broker"] = self._broker
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told)


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, (bool, int, float)) else printable(str(value))
