#!/bin/sh
# Writes requirements/{cpu,gpu,api,openai2}.txt, hash-locked for Python 3.11 to 3.13 (`make lock`): three from
# pyproject.toml, and the environment with version 2 of OpenAI's client that tests/conformance makes.
#
# Needs uv: on PATH, or named by $UV. A folder of extra wheels can be given in $PIP_FIND_LINKS.
# cpu.txt leaves out torch (its CPU build is not on PyPI, .ci/setup_env.py installs it in its own step), and
# what vLLM does not use on a CPU: without triton alone an environment is 1 GB smaller.
# The override is a file and no [tool.uv] table because the gpu lock must keep those packages.
set -eu
cd "$(dirname "$0")/.."

lock() {
    "${UV:-uv}" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-annotate --no-header --no-emit-find-links --no-emit-index-url "$@"
}

compile() {
    lock --extra build "$@" pyproject.toml
}

compile --extra cpu --extra demo --extra dev --override requirements/overrides.txt \
    ${PIP_FIND_LINKS:+--find-links "$PIP_FIND_LINKS"} \
    --no-emit-package torch --no-emit-package torchvision --no-emit-package torchaudio \
    --no-emit-package torchcodec --no-emit-package triton --output-file requirements/cpu.txt
compile --extra gpu --extra demo --extra dev --override requirements/overrides-gpu.txt \
    --output-file requirements/gpu.txt
compile --output-file requirements/api.txt
lock --output-file requirements/openai2.txt requirements/openai2.in
wc -l requirements/*.txt
