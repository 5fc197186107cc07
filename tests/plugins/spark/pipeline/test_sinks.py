"""Options of file sinks: what a format does not have is refused, because Spark passes over it in silence; and modes."""

from __future__ import annotations

from unittest import mock

import pytest

from flintmq.config.errors import ConfigError
from flintmq.plugins.spark.pipeline.load import load_pipeline_text
from flintmq.plugins.spark.pipeline.models import FileSink
from flintmq.plugins.spark.pipeline.sinks import BoundSink, check_file_options


def check(sink_format: str, options: str, *, is_our_delta: bool = False) -> None:
    text = f"source: {{path: /s}}\nsinks:\n  - format: {sink_format}\n    path: /out\n    options: {{{options}}}\n"
    loaded = load_pipeline_text(text, name="p.yaml")
    (sink,) = loaded.pipeline.sinks
    assert isinstance(sink, FileSink)
    check_file_options(loaded, "sinks[0]", sink, is_our_delta=is_our_delta)


@pytest.mark.parametrize(
    ("sink_format", "options", "ours"),
    [
        ("parquet", "compression: zstd, MAXRECORDSPERFILE: '5', parquet.block.size: '1'", False),
        ("delta", "mergeSchema: 'true', replaceWhere: x = 1, delta.autoOptimize.optimizeWrite: 'true'", False),
        ("delta", "mergeSchema: 'TRUE'", True),
    ],
)
def test_valid_options_of_a_sink_format_are_accepted_in_any_letter_case(
    sink_format: str, options: str, ours: bool
) -> None:
    """Names of options are accepted in any case, as Spark accepts them."""
    check(sink_format, options, is_our_delta=ours)


@pytest.mark.parametrize(
    ("sink_format", "options", "ours", "says"),
    [
        ("parquet", "compresion: zstd", False, r"p\.yaml:5: .*parquet has no option 'compresion'.*compression"),
        ("parquet", "mergeSchema: 'true'", False, "parquet has no option 'mergeSchema'"),
        ("delta", "replaceWhere: x = 1", True, "without a jar has no option 'replaceWhere', only mergeSchema"),
        ("delta", "mergeSchema: 'yes'", True, "must be true or false, not 'yes'"),
    ],
)
def test_unknown_options_of_a_sink_format_are_refused(sink_format: str, options: str, ours: bool, says: str) -> None:
    """The error names the line and the option that was probably meant."""
    with pytest.raises(ConfigError, match=says) as raised:
        check(sink_format, options, is_our_delta=ours)
    assert raised.value.line == 5


@pytest.mark.parametrize("mode", ["append", "overwrite", "errorifexists", "ignore"])
def test_each_write_mode_of_a_sink_is_translated_to_a_name_supported_by_spark_connect(mode: str) -> None:
    """Spark Connect refuses ``errorifexists``, which is the default mode of files."""
    loaded = load_pipeline_text(
        f"source: {{path: /s}}\nsinks: [{{format: parquet, path: /out, mode: {mode}}}]\n", name="p.yaml"
    )
    frame = mock.MagicMock()
    frame.sparkSession.conf.get.return_value = ""
    planned = mock.MagicMock(loaded=loaded)
    planned.frame_of.return_value = frame
    assert BoundSink(planned, 0).write(frame)
    (named,) = frame.write.mode.call_args.args
    assert named in ("append", "overwrite", "error", "ignore")
