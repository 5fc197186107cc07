#!/usr/bin/env bash
# Checks the types of the package and of tests/support, strictly. mypy needs a folder named flintmq: .overlay/flintmq, a link to
# the checkout, is that folder.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p .overlay
ln -sfn .. .overlay/flintmq
cd .overlay
python -m mypy --config-file ../pyproject.toml -m flintmq -m flintmq.__main__ \
  -p flintmq.client -p flintmq.config -p flintmq.testing -p flintmq.core -p flintmq.dispatchers -p flintmq.flush -p flintmq.remoting -p flintmq.plugins -p flintmq.programs -p flintmq.protocol -p flintmq.tests.support
cd ..
python tools/public_types.py
