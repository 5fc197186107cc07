#!/usr/bin/env bash
# Runs the strict type checker over the package and what the tests share. mypy wants a folder named flintmq: a link to the checkout, in .overlay, is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p .overlay
ln -sfn .. .overlay/flintmq
cd .overlay
python -m mypy --config-file ../pyproject.toml -m flintmq -m flintmq.__main__ \
  -p flintmq.client -p flintmq.config -p flintmq.testing -p flintmq.core -p flintmq.dispatchers -p flintmq.flush -p flintmq.remoting -p flintmq.plugins -p flintmq.programs -p flintmq.protocol -p flintmq.tests.support
cd ..
python tools/public_types.py
