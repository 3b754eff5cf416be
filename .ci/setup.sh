#!/usr/bin/env bash
# Make $VENV and install this project into it, editable, with the extras named in the first argument.
set -euo pipefail

extras=${1:?usage: setup.sh EXTRAS}
venv=${VENV:-.venv}
torch=${TORCH:-torch}

find_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "Flash-GRPO Studio needs Python 3.11 or newer; found $(python3 --version 2>&1 || echo none). Install it and run make again." >&2
    exit 1
}

if [[ ! -x $venv/bin/python ]]; then
    python=$(find_python)
    echo "Setting up $venv with $("$python" --version)"
    "$python" -m venv "$venv" || {
        echo "Could not create $venv; on Debian and Ubuntu install the package python3-venv and run make again." >&2
        exit 1
    }
fi
pip=("$venv/bin/python" -m pip --disable-pip-version-check)

# On Linux the default torch brings gigabytes of GPU libraries. Without a GPU, take a CPU build where pip can see one.
if [[ $torch == torch && $(uname -s) == Linux ]] && ! command -v nvidia-smi >/dev/null; then
    cpu=$("${pip[@]}" index versions torch 2>/dev/null | grep -oE '[0-9][0-9.]*\+cpu' | head -n 1 || true)
    torch=${cpu:+torch==$cpu}
    torch=${torch:-torch}
fi

echo "Installing $torch and the project with extras [$extras] (the first time takes some minutes)"
"${pip[@]}" install --quiet "$torch" --editable ".[$extras]"
