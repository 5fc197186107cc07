"""Checks, for ``flintmq pipeline run --dry-run``, that a pipeline can reach the store or the brokers of its source, the topics,
and the folders of its sinks.

The checks write nothing, and read only the first and last offsets of the source. With Spark Connect, the sinks write on the
server. The folders on the server are not checked.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from flintmq.config.rocketmq.system_topics import AUTO_CREATE_TOPIC
from flintmq.core.errors import RefusedError
from flintmq.core.response_code import ResponseCode
from flintmq.plugins.spark.errors import SparkPluginError, UnknownTopicError
from flintmq.plugins.spark.options import ReadOptions, WriteOptions
from flintmq.plugins.spark.pipeline.load import LoadedPipeline
from flintmq.plugins.spark.pipeline.models import FileSink, TopicSink
from flintmq.plugins.spark.pipeline.planning import check_source, named_option, source_placed


def check_places(loaded: LoadedPipeline) -> None:
    """Check that a pipeline's source can be read, and that the destination of each sink can be written.

    Raises:
        ConfigError: the source cannot be read, or a destination cannot be written. The error has the line of the path, the
            address or the topic.
    """
    from flintmq.plugins.spark.source import transport_of

    options = check_source(loaded)
    with source_placed(loaded, options):
        parsed = ReadOptions.parse(options)
        with contextlib.closing(transport_of(parsed)) as transport:
            transport.initial("latest")
    stream = loaded.pipeline.stream
    if stream is not None:
        _check_folder(loaded, "stream.checkpoint", stream.checkpoint)
    for place, sink in enumerate(loaded.pipeline.sinks):
        key = f"sinks[{place}]"
        if isinstance(sink, FileSink):
            taken = stream is None and sink.format == "parquet" and sink.mode == "errorifexists"
            _check_folder(loaded, f"{key}.path", sink.path, must_be_empty=taken)
        elif isinstance(sink, TopicSink):
            given = loaded.revealed(key, sink.options)
            try:
                _check_topic(WriteOptions.parse(given))
            except SparkPluginError as error:
                named = named_option(given, str(error))
                inner = f"{key}.{named}" if named else key
                raise loaded.error(inner, f"'{inner}': {error}") from error


def _check_folder(loaded: LoadedPipeline, key: str, path: str, *, must_be_empty: bool = False) -> None:
    """Raise ConfigError if a sink's local folder cannot be written. Folders on other file systems are not checked."""
    address = urlsplit(path)
    if address.scheme not in ("", "file"):
        return
    folder = Path(unquote(address.path) if address.scheme else path).absolute()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        raise loaded.error(key, f"'{key}': {there} is a file, but must be a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise loaded.error(key, f"'{key}': this process may not write into {there}")
    if must_be_empty and there == folder:
        raise loaded.error(key, f"'{key}': {folder} exists already; 'mode: append' adds to it, 'overwrite' replaces it")


def _check_topic(options: WriteOptions) -> None:
    """Raise SparkPluginError if a sink cannot send to its topic: no broker answers, or the topic is missing and brokers do not
    create topics automatically."""
    from flintmq.plugins.spark.wire.client import WireClient, again

    topic = options.topic
    with contextlib.closing(WireClient(options.name_server, options.broker_addr)) as client:

        async def has(name: str) -> bool:
            try:
                await again(lambda: client.instance.routes.route(name, max_age_s=0))
            except RefusedError as refused:
                if refused.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
                return False
            return True

        if topic is None:
            client.run(client.topics())
        elif not client.run(has(topic)) and not (options.broker_addr is None and client.run(has(AUTO_CREATE_TOPIC))):
            raise UnknownTopicError(
                f"{client.where}: there is no topic {topic}; create it, or change the option 'topic'"
            )
