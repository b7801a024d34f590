#!/bin/sh
# Sets up the rivals of bench/scenarios/train.py that are no Debian packages: Paddle's parameter server, from PyPI.
#
# usage: bench/rivals/setup.sh [DIR]        DIR (default: build/rivals) becomes a virtual environment
# Paddle 2.6.2 is the last with a parameter server that works as it is; newer protobuf fails in it with a misleading message.
set -eu
dir="${1:-build/rivals}"
/usr/bin/python3 -m venv "$dir"
"$dir/bin/pip" install --quiet "paddlepaddle==2.6.2" "protobuf==4.25.8" "numpy<2" setuptools
"$dir/bin/python" -c "import paddle; print('paddle', paddle.__version__)"
