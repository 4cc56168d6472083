#!/usr/bin/env bash
# Snakemake runs this in an environment that it has made of environment.yml (`--software-deployment-method conda`),
# from the clone in which it was started: there the file's own folder is another one.
set -euo pipefail
pip install --no-deps --no-build-isolation -e .
