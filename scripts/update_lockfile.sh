#!/usr/bin/env bash
# Resolve requirements.in anew into requirements.lock; needs uv. Versions that still fit stay as
# they are; add `--upgrade-package NAME` to move one.
#
# torch is left out on purpose (see requirements.in), and so are the CUDA packages that only its
# Linux build needs. Python 3.11 is the oldest supported; the hashes cover every file of a release,
# so the same lock serves newer Pythons and macOS.
set -euo pipefail
cd "$(dirname "$0")/.."

cuda_needs_of_torch=(
    cuda-bindings cuda-toolkit triton
    nvidia-cudnn-cu13 nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvshmem-cu13
)
"${UV:-uv}" pip compile requirements.in --output-file requirements.lock \
    --generate-hashes --python-version 3.11 --python-platform linux \
    --no-emit-package torch --excludes <(printf '%s\n' "${cuda_needs_of_torch[@]}") \
    --custom-compile-command scripts/update_lockfile.sh --quiet "$@"
