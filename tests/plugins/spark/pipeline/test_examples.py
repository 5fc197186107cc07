"""The example pipelines are pipelines, and the demo's works in any folder."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import flintmq
from flintmq.config.errors import ConfigError
from flintmq.plugins.spark.pipeline.load import load_pipeline, load_pipeline_text
from flintmq.plugins.spark.pipeline.models import FileSink
from flintmq.plugins.spark.pipeline.planning import check_source
from flintmq.programs.cli.pipeline import BROKEN_EVERY, orders

FOLDER = Path(str(flintmq.__file__)).parent / "examples" / "pipelines"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_each_example_file_is_a_valid_pipeline(file: Path) -> None:
    """People begin by copying one: keys, options of the source and files beside it must be right."""
    loaded = load_pipeline(file)
    assert check_source(loaded)
    schema_file = loaded.pipeline.decode.schema_file
    assert schema_file is None or loaded.read("decode.schema_file", schema_file)


def test_a_pipeline_that_keeps_bad_records_is_refused_if_it_omits_the_column_for_bad_records() -> None:
    """Without the column, a damaged record would look like a message without a body."""
    text = "source:\n  path: /s\n  badRecords: keep\n  columns: topic,body%s\nsinks: [{format: console}]\n"
    with pytest.raises(ConfigError, match=r"pipeline:4: 'source\.columns' lacks badRecord"):
        check_source(load_pipeline_text(text % ""))
    assert check_source(load_pipeline_text(text % ",badRecord"))


def test_all_paths_of_the_demo_pipeline_are_relative_to_its_folder() -> None:
    """The demo runs the example that lies there to be edited, with its folder for ``./``: all it reads and writes is there."""
    pipeline = load_pipeline(FOLDER / "demo.yaml").pipeline
    places = [pipeline.source["path"], *(sink.path for sink in pipeline.sinks if isinstance(sink, FileSink))]
    assert len(places) == 3
    assert all(str(place).startswith("./") for place in places)
    packaged = tomllib.loads((FOLDER.parent.parent / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]
    assert "examples/pipelines/demo.yaml" in packaged["flintmq"], "it is installed, too"


def test_the_demo_pipeline_has_messages_with_broken_bodies() -> None:
    """Without them the demo would not show how rejected bodies are handled."""
    bodies = list(orders(1_000))
    assert sum(body == b'{"id": ' for body in bodies) == 1_000 // BROKEN_EVERY
