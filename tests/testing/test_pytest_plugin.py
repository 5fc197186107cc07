"""What docs/testing.md promises to the tests of other programs is run here as they run it: by a pytest of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
SNIPPET = re.compile(r"^```python\n# (test_\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def snippets(pytester: pytest.Pytester) -> int:
    """Write the files of the page where the inner pytest finds them; return how many tests they hold."""
    found = SNIPPET.findall(PAGE.read_text("utf-8"))
    for name, text in found:
        (pytester.path / name).write_text(text, "utf-8")
    return sum(text.count("def test_") for _name, text in found)


@pytest.mark.slow
def test_every_code_snippet_of_the_documentation_about_testing_passes(pytester: pytest.Pytester, snippets: int) -> None:
    """Nothing but FlintMQ's installation is needed; a warning is an error there as here."""
    assert snippets == 15
    pytester.runpytest_subprocess("-W", "error", "-p", "no:randomly").assert_outcomes(passed=snippets)


@pytest.mark.slow
def test_code_snippets_of_the_documentation_about_testing_pass_in_parallel_pytest_workers(
    pytester: pytest.Pytester, snippets: int
) -> None:
    """Each worker's brokers have ports and folders of their own."""
    pytester.runpytest_subprocess("-n", "2").assert_outcomes(passed=snippets)


def test_a_test_broker_uses_real_time_if_the_test_does_not_request_the_virtual_clock(pytester: pytest.Pytester) -> None:
    """A test that knows nothing of the clock has a broker as everyone else has: a second's delay takes a second."""
    pytester.makepyfile("""
        import flintmq

        def test_a_second(flintmq_broker, flintmq_topic):
            flintmq_broker.put([flintmq.Message(flintmq_topic, b"soon", delay_level=1)])
            assert flintmq_broker.messages(flintmq_topic) == []
            (message,) = flintmq_broker.wait_for_messages(flintmq_topic)
            assert message.body == b"soon"
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_tests_that_share_a_broker_have_different_topics(pytester: pytest.Pytester) -> None:
    """Overriding ``flintmq_broker`` with one of a wider scope is how a large suite saves its starts."""
    pytester.makepyfile("""
        import flintmq, pytest
        from flintmq.testing.embedded import EmbeddedBroker

        @pytest.fixture(scope="module")
        def flintmq_broker():
            with EmbeddedBroker() as broker:
                yield broker

        @pytest.mark.parametrize("body", [b"a", b"b/c"])
        def test_alone(flintmq_broker, flintmq_topic, body):
            flintmq_broker.put([flintmq.Message(flintmq_topic, body)])
            assert [message.body for message in flintmq_broker.messages(flintmq_topic)] == [body]
    """)
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


def test_importing_the_pytest_plugin_loads_no_other_flintmq_module_except_its_parent_packages() -> None:
    """Every start of pytest imports it, also in projects that do not use it."""
    code = "import sys, flintmq.testing.pytest_plugin; print(*sorted(n for n in sys.modules if 'flintmq' in n))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = [name for name in run.stdout.split() if name.partition(".")[0] == "flintmq"]
    assert loaded == ["flintmq", "flintmq.testing", "flintmq.testing.pytest_plugin"]


def test_pytest_rewrites_no_assertions_of_flintmq(pytester: pytest.Pytester) -> None:
    """pytest would compile all of FlintMQ anew, three times the price of a test with a broker."""
    pytester.makeconftest("import flintmq.core.io.clock")
    pytester.makepyfile("""
        import sys

        def test_a_broker(flintmq_broker):
            names = [name for name in sys.modules if name.startswith("flintmq.")]
            assert len(names) > 100
            loaders = {name: type(sys.modules[name].__loader__).__module__ for name in (__name__, *names)}
            assert "rewrite" in loaders.pop(__name__)
            loaders.pop("flintmq.testing.pytest_plugin")  # which pytest itself imports, with its parents
            assert {name for name, loader in loaders.items() if "rewrite" in loader} <= PARENTS

        PARENTS = {"flintmq.plugins", "flintmq.testing"}
    """)
    code = (
        "import sys, pytest; assert pytest.main([]) == 0; print(*(type(finder).__module__ for finder in sys.meta_path))"
    )
    done = pytester.run(sys.executable, "-c", code)
    assert done.ret == 0, done.outlines
    assert "flintmq" not in done.outlines[-1], "what was there for a run ends with it"
