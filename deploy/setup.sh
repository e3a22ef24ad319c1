#!/usr/bin/env bash
# Installs, by name, the Debian packages that building or testing needs and that are not there yet.
# usage: setup.sh build|test|torture|bench|bench-egress|bench-quota|crosscheck …
set -euo pipefail

declare -a wanted=()
for part in "$@"; do
  case "$part" in
    # zlib-ng (in Pingora) is built by cmake, ring and blake3 by a C compiler. curl is what a first delivery is sent with.
    build) wanted+=(build-essential cmake pkg-config ca-certificates curl) ;;
    # ext4 on loop devices and a FUSE disk for power cuts, strace to see syncs, faketime for clocks that step, networks
    # and firewalls in namespaces, curl and Python as honest clients.
    test) wanted+=(e2fsprogs mount strace faketime python3-fusepy git curl python3 jq openssl iproute2 nftables util-linux)
      # Clients that people use, and what compiles those that are not Debian's own here already.
      wanted+=(python3-requests python3-httpx python3-websocket node-undici)
      # Servers for the quota that nodes share.
      wanted+=(redis-server redis-sentinel tzdata)
      # A server for the ledger and the definitions that nodes share. Tests start their own, as another user.
      wanted+=(postgresql postgresql-client)
      command -v node >/dev/null || wanted+=(nodejs)
      command -v go >/dev/null || wanted+=(golang-go)
      command -v javac >/dev/null || wanted+=(default-jdk-headless)
      ;;
    # A virtual machine whose disk logs every write, and what its first file system is made of. The kernel comes by
    # tests/tools/guest-kernel.sh, which does not install it.
    torture) wanted+=(qemu-system-x86 busybox-static dmsetup kmod cpio) ;;
    # strace counts syncs; npm fetches a peer and node runs its handler, unless they are here from elsewhere.
    bench) wanted+=(strace); command -v npm >/dev/null || wanted+=(nodejs npm) ;;
    # Two peers; Python fetches the third into a directory of the bench's. openssl prints the public half of a key.
    bench-egress) wanted+=(squid haproxy python3 python3-venv openssl) ;;
    bench-quota) wanted+=(redis-server) ;;
    # npm and pip fetch the official SDKs into a directory of the target's, node and Python run them.
    crosscheck) wanted+=(python3 python3-venv)
      command -v node >/dev/null || wanted+=(nodejs)
      command -v npm >/dev/null || wanted+=(npm)
      ;;
    *) echo "setup.sh: unknown part '$part'" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${wanted[@]}"; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup.sh: as root, install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

# What is only measured beside us is not to listen on this machine from now on.
for package in squid haproxy redis-server postgresql; do
  if [[ " ${missing[*]} " == *" $package "* ]] && command -v systemctl >/dev/null; then
    "${as_root[@]}" systemctl disable --quiet --now "$package" 2>/dev/null || true
  fi
done
