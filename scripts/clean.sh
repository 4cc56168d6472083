#!/usr/bin/env bash
# Remove build/, unless it is the only record of runs on private data; `make clean` calls
# this. It works without .venv where build/ holds no results (variables: see the Makefile).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=.venv/bin/python
if [[ ! -e build && ! -L build ]]; then exit; fi
# Links are followed. If find fails, results may exist.
if ! found=$(find -L build \( -name '*.parquet' -o -name rows.pt \) -print -quit 2> /dev/null) || [[ -n "$found" ]]; then
    if ! "$python" -c 'import oso_dp.results.unsaved' 2> /dev/null; then
        echo "oso: error: build: has results (${found:-or unreadable files}), perhaps the only record of" \
            "runs on private data; .venv is needed to check: run make setup, then make" \
            "clean; nothing was deleted" >&2
        exit 2
    fi
    "$python" -m oso_dp.results.unsaved build "${STORE:-results}"
fi
rm -rf build
