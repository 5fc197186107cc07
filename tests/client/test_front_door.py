"""One table says what the client library has: ``flintmq.client`` and ``flintmq`` give out the same objects, and no other."""

from __future__ import annotations

import subprocess
import sys

import pytest

import flintmq
import flintmq.client
from flintmq.remoting import client as library


@pytest.mark.parametrize("name", sorted(library.__all__))
def test_a_name_is_the_same_everywhere(name: str) -> None:
    """Two classes of one name would make ``isinstance`` and ``except`` lie."""
    assert getattr(flintmq.client, name) is getattr(library, name) is getattr(flintmq, name)


def test_what_is_given_out_is_listed() -> None:
    """For ``from flintmq.client import *``, for completion in an editor, and for nobody to rely on anything else."""
    assert flintmq.client.__all__ == library.__all__ == sorted(library.__all__)
    assert set(library.__all__) == set(library._HOME_OF)
    assert set(library.__all__) < set(flintmq.__all__)
    assert set(flintmq.__all__) <= set(dir(flintmq))
    assert set(library.__all__) <= set(dir(flintmq.client))
    for module in (flintmq, flintmq.client, library):
        with pytest.raises(AttributeError, match="no attribute 'Prodcuer'"):
            module.Prodcuer  # noqa: B018


def test_a_name_costs_what_it_needs() -> None:
    """A producer loads no consumer, and neither a store nor numpy: a front door that loads the house is not one."""
    script = (
        "import sys; from flintmq.client import Message; from flintmq.client import Producer\n"
        "unwanted = ('flintmq.remoting.client.consumer', 'flintmq.core.store', 'flintmq.plugins', 'numpy')\n"
        "print([name for name in unwanted if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
