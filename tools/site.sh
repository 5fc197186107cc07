#!/usr/bin/env bash
# Builds the site of docs/ into site/, to be opened from there or served by any web server: a broken link, a page outside the
# navigation of mkdocs.yml and a snippet that no test accounts for end it with 1. Needs `pip install '.[site]'`. The theme's notice of its
# end is left out: CONTRIBUTING.md has it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
NO_MKDOCS_2_WARNING=1 python -m mkdocs build --strict --clean "$@"
