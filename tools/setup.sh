#!/bin/sh
# Installs the Debian packages of the given groups of tools/packages.txt that are missing, and only those.
#
# usage: tools/setup.sh GROUP...        (groups: build lint hdfs bench)
# Says what it installs; silent when nothing is missing. On another system it prints the list and fails.
set -eu

list="$(dirname "$0")/packages.txt"
packages=""
for group in "$@"; do
  named=$(awk -v group="$group" '$1 == group { print $2 }' "$list")
  [ -n "$named" ] || { echo "setup: no group '$group' in tools/packages.txt" >&2; exit 2; }
  packages="$packages $named"
done
[ -n "$packages" ] || { echo "usage: tools/setup.sh GROUP..." >&2; exit 2; }

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this is not a Debian system. Install what these packages hold, then run make with SETUP=no:" >&2
  for package in $packages; do echo "  $package" >&2; done
  exit 1
fi

missing=""
for package in $packages; do
  # A line per architecture; a package that was removed is listed too, with another state.
  dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || {
    echo "setup: needs root or sudo to install:$missing" >&2
    exit 1
  }
  as_root="sudo"
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
