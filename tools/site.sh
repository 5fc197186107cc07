#!/usr/bin/env bash
# Builds the site of docs/ into site/, to be opened there or served by any web server. Exits with 1 on a broken link, on a page
# outside the navigation of mkdocs.yml, and on a snippet without an entry in tests/snippets.toml. Needs `pip install '.[site]'`.
# The theme's notice of its announced end is switched off; CONTRIBUTING.md has the dates.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
NO_MKDOCS_2_WARNING=1 python -m mkdocs build --strict --clean "$@"
