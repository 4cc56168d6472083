#!/usr/bin/env bash
# Remove build/, unless it is the only record of runs on data that are not public; `make clean` calls
# this. It works without .venv where build/ holds no results (variables: see the Makefile).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=.venv/bin/python
if [[ ! -e build && ! -L build ]]; then exit; fi
# Of a link, its target counts. An error of find means that it cannot tell.
if ! found=$(find -L build -name '*.parquet' -print -quit 2> /dev/null) || [[ -n "$found" ]]; then
    if ! "$python" -c 'import oso_dp.results.unsaved' 2> /dev/null; then
        echo "oso: error: build: holds results (${found:-or what cannot be read}); whether they are the" \
            "only record of runs on data that are not public is told by .venv: make setup, then make" \
            "clean; nothing was deleted" >&2
        exit 2
    fi
    "$python" -m oso_dp.results.unsaved build "${STORE:-results}"
fi
rm -rf build
