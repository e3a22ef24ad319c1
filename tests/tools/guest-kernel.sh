#!/usr/bin/env bash
# Fetches Debian's kernel for virtual machines into a directory, without installing it on this machine, and prints
# where it is: boot/vmlinuz-… and lib/modules/… below that.
# usage: guest-kernel.sh DIRECTORY
set -euo pipefail

refuse() {
  echo "guest-kernel.sh: $1" >&2
  exit 1
}

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
[ "$(dpkg --print-architecture)" = amd64 ] || refuse "the guest is an amd64 machine, and this one is not"

newest() {
  apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1
}

package="$(newest)"
if [ -z "$package" ]; then
  "${as_root[@]}" apt-get update -qq
  package="$(newest)"
fi
[ -n "$package" ] || refuse "no source of packages here has linux-image-cloud-amd64; a Debian of amd64 has it"

mkdir -p "$1"
kernel="$(cd "$1" && pwd)/$package"
if [ ! -e "$kernel" ]; then
  unpacked="$(mktemp -d "$kernel.XXXXXX")"
  trap 'rm -rf "$unpacked"' EXIT
  cd "$unpacked"
  # The lists may be older than what the mirror still has.
  apt-get download -qq "$package" 2>/dev/null || {
    "${as_root[@]}" apt-get update -qq
    apt-get download -qq "$package"
  }
  dpkg-deb -x ./*.deb .
  rm ./*.deb
  depmod -b . "${package#linux-image-}"
  mv -T "$unpacked" "$kernel"
fi
[ -n "$(find "$kernel/lib/modules" -name 'dm-log-writes.ko*')" ] || refuse "$package has no module dm-log-writes"
echo "$kernel"
