"""Pipelines in YAML files. A pipeline reads messages from a FlintMQ source, decodes the messages, runs SQL steps, and writes to
any number of sinks.

::

    loaded = load_pipeline(Path("orders.yaml"))      # needs no Spark; an error names its line in the file
    planned = plan(spark, loaded)                    # analyzed by Spark; no message is read
    run(planned)                                     # batch, or streaming with a checkpoint

The command is ``flintmq pipeline run``; ``python -m flintmq.plugins.spark.pipeline`` does the same under ``spark-submit``.
The guide is docs/pipelines.md.
"""

from __future__ import annotations

from flintmq.plugins.spark.pipeline.load import LoadedPipeline, load_pipeline, load_pipeline_text
from flintmq.plugins.spark.pipeline.models import Pipeline

__all__ = ["LoadedPipeline", "Pipeline", "load_pipeline", "load_pipeline_text"]
