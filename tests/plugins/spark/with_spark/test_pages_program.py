"""The program that runs the blocks of the pages about Spark knows every block; running them takes minutes."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs PySpark")
from pages_program import CHECKS, blocks, check_of


def test_each_code_block_of_the_documentation_about_spark_has_one_function_that_checks_its_result() -> None:
    """A page that changes must change the check of its block as well."""
    checks = [check_of(one) for one in blocks()]
    assert set(checks) == set(CHECKS.values())
