"""The example pipelines are pipelines, and the demo's is the one that the demo runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import flintmq
from flintmq.plugins.cli.pipeline_demo import BROKEN_EVERY, PIPELINE, orders
from flintmq.plugins.spark.pipeline.load import load_pipeline
from flintmq.plugins.spark.pipeline.planning import check_source

FOLDER = Path(str(flintmq.__file__)).parent / "examples" / "pipelines"


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_an_example_is_a_pipeline(file: Path) -> None:
    """People begin by copying one: keys, options of the source and files beside it must be right."""
    loaded = load_pipeline(file)
    assert check_source(loaded)
    schema_file = loaded.pipeline.decode.schema_file
    assert schema_file is None or loaded.read("decode.schema_file", schema_file)


def test_the_demo_is_the_example() -> None:
    """What the demo shows must be what lies there to be edited."""
    assert (FOLDER / "demo.yaml").read_text("utf-8") == PIPELINE.format(folder=".")


def test_the_demo_has_something_to_reject() -> None:
    """Otherwise it would show nothing of how broken bodies are dealt with."""
    bodies = list(orders(1_000))
    assert sum(body == b'{"id": ' for body in bodies) == 1_000 // BROKEN_EVERY
