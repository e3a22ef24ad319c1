#!/usr/bin/env bash
# Starts the appliance with the example configuration and prints two lines to try it with. Ctrl-C stops it.
set -euo pipefail
cd "$(dirname "$0")/.."

tidegate=${TIDEGATE:-target/release/tidegate}
home=run
config=$home/tidegate.toml

free_port() { # the first free one from $1 on
  local port=$1
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  echo "$port"
}

mkdir -p "$home"
[ -d "$home/tenants" ] || cp -r deploy/example/tenants "$home/tenants"
mkdir -p -m 0700 "$home/tenants/acme.secrets"
for name in $(grep -o '"secret:[A-Za-z0-9_-]*"' "$home/tenants/acme.toml" | cut -d: -f2 | tr -d '"' | sort -u); do
  secret=$home/tenants/acme.secrets/$name
  [ -s "$secret" ] || (umask 077; od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$secret")
done

port=$(free_port 8080)
admin=$(free_port 9090)
sed -e "s|127.0.0.1:8080|127.0.0.1:$port|" -e "s|127.0.0.1:9090|127.0.0.1:$admin|" \
  -e 's|^directory = "/var/lib/tidegate/log"|directory = "log"|' \
  deploy/example/tidegate.toml >"$config"

"$tidegate" check --config "$config"
"$tidegate" run --config "$config" &
appliance=$!
# Ctrl-C reaches the appliance by itself; a second signal would cut its drain short.
trap 'wait $appliance' INT
trap 'kill -TERM $appliance 2>/dev/null; wait $appliance' TERM

ready=no
for _ in $(seq 100); do
  if (exec 3<>"/dev/tcp/127.0.0.1/$admin") 2>/dev/null; then ready=yes; break; fi
  kill -0 "$appliance" 2>/dev/null || break
  sleep 0.1
done
[ "$ready" = yes ] || { wait "$appliance"; exit $?; }

endpoint=$(sed -n 's/^id *= *"\(wh_[^"]*\)".*/\1/p' "$home/tenants/acme.toml" | head -n 1)
body=$home/delivery.json
printf '{"zen":"Keep it logically awesome.","hook_id":1}' >"$body"
cat <<TEXT

Tidegate takes deliveries on http://127.0.0.1:$port; metrics are on http://127.0.0.1:$admin/metrics.

A signed delivery, ready to paste:
$("$tidegate" send --config "$config" --endpoint "$endpoint" --body "$body" --print-curl | sed 's/^/  /')

The same, signed and sent for you:
  $tidegate send --config $config --endpoint $endpoint --body $body

And what was stored:
  $tidegate events list --config $config --endpoint $endpoint

TEXT
wait "$appliance"
