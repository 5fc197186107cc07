"""Of all that Spark says when something fails, the part that tells what went wrong."""

from __future__ import annotations

import pytest

from flintmq.plugins.spark.pipeline.planning import first_words

TRACEBACK = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to initialize: Traceback (most recent call last):
  File "source.py", line 58, in reader
    raise OptionError("x")
flintmq.plugins.spark.errors.OptionError: unknown option 'subscrib'
"""
MASKED = """\
[STREAM_FAILED] Query x terminated with exception: Traceback (most recent call last):
  File "a.py", line 1, in main
flintmq.plugins.spark.errors.UnknownTopicError: there is no topic T

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "b.py", line 2, in main
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
"""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "[A] column `x` is not there; line 1 pos 7;\n'Project ['x]\n+- Relation",
            "[A] column `x` is not there; line 1 pos 7",
        ),
        ("[PARSE] near 'SELEC'.\n== SQL ==\nSELEC 1\n^^^", "[PARSE] near 'SELEC'."),
        ("java.lang.X: no\n\tat org.apache.spark.Y(Y.scala:1)", "java.lang.X: no"),
        (TRACEBACK, "unknown option 'subscrib'"),
        (MASKED, "there is no topic T"),
    ],
)
def test_the_reason_of_a_spark_error_is_shown_without_its_query_plan_and_stack_trace(said: str, words: str) -> None:
    """An error of Spark contains a plan and a stack of a hundred lines, which hide the line that helps."""
    assert first_words(RuntimeError(said)) == words
