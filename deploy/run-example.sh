#!/usr/bin/env bash
# Starts the appliance with the example configuration, sends it one delivery, and prints what became of it and lines to try it
# with. Ctrl-C stops it.
set -euo pipefail
cd "$(dirname "$0")/.."

tidegate=${TIDEGATE:-target/release/tidegate}
# A provider on this machine, which runs are to call.
provider=${PROVIDER:-${tidegate%/*}/echo-provider}
home=run
config=$home/tidegate.toml

free_port() { # the first free one from $1 on
  local port=$1
  while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done
  echo "$port"
}

mkdir -p "$home"
if [ ! -d "$home/tenants" ]; then
  cp -r deploy/example/tenants "$home/tenants"
  sed -i 's|^#:schema ../../../docs|#:schema ../../docs|' "$home"/tenants/*.toml
fi
mkdir -p -m 0700 "$home/tenants/acme.secrets"
tenant=$home/tenants/acme.toml

listens() { # the first address that table [$1] listens on
  sed -n "/^\[$1\]/,/^\[/s/^listen *= *\[\{0,1\}\"\([^\"]*\)\".*/\1/p" "$config" | head -n 1
}
is_ready() {
  local admin answer
  admin=$(listens admin)
  answer=$( (exec 3<>"/dev/tcp/${admin%:*}/${admin##*:}"
    printf 'GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' >&3
    head -n 1 <&3) 2>/dev/null) && [[ $answer == *" 200 "* ]]
}

if [ -e "$config" ] && is_ready; then
  echo "an appliance answers at $(listens admin) already: the one of $config, most likely" >&2
  exit 1
fi

# Whoever has a configuration of before has no runs in it, and keeps it as it is.
if [ -x "$provider" ] && [ ! -e "$config" ] && ! grep -q conn_echo "$tenant"; then
  token=tgr_$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
  (umask 077; printf '%s' "$token" >"$home/runner.token")
  cat >>"$tenant" <<TOML

# The provider of \`make run\`, by its own authority.
[[connection]]
id = "conn_echo"
connector = "http"
base_url = "https://127.0.0.1:$(free_port 8443)"
roots = "secret:echo-authority"

# Whoever has run/runner.token may ask the runner's API for this tenant.
[[runner.token]]
name = "example"
hash = "sha256:$(printf '%s' "$token" | sha256sum | cut -d' ' -f1)"
scope = "author"
TOML
fi
echo_at=$(sed -n 's|^base_url = "https://\(127\.0\.0\.1:[0-9]*\)"$|\1|p' "$tenant" | head -n 1)
if [ -x "$provider" ] && [ -n "$echo_at" ]; then
  "$provider" "$echo_at" "$home/tenants/acme.secrets/echo-authority" &
  echoing=$!
  trap 'kill $echoing 2>/dev/null' EXIT
  for _ in $(seq 50); do [ -s "$home/tenants/acme.secrets/echo-authority" ] && break; sleep 0.1; done
  chmod 600 "$home/tenants/acme.secrets/echo-authority"
else
  echo_at=
fi
for name in $(grep -o '"secret:[A-Za-z0-9_-]*"' "$home/tenants/acme.toml" | cut -d: -f2 | tr -d '"' | sort -u); do
  secret=$home/tenants/acme.secrets/$name
  [ -s "$secret" ] || (umask 077; od -An -N24 -tx1 /dev/urandom | tr -d ' \n' >"$secret")
done

# Made once: what somebody changed in it stays.
if [ ! -e "$config" ]; then
  sed -e "s|127.0.0.1:8080|127.0.0.1:$(free_port 8080)|" -e "s|127.0.0.1:9090|127.0.0.1:$(free_port 9090)|" \
    -e "s|127.0.0.1:3128|127.0.0.1:$(free_port 3128)|" -e "s|127.0.0.1:8070|127.0.0.1:$(free_port 8070)|" \
    -e 's|^directory = "/var/lib/tidegate/log"|directory = "log"|' -e 's|^#:schema ../../docs|#:schema ../docs|' \
    deploy/example/tidegate.toml >"$config"
  # Who may call out: whoever has this key, which `tidegate grant` signs with.
  rm -f "$home/grant.key.pem"
  printf '\n%s\n' "$("$tidegate" grant keygen --out "$home/grant.key.pem" 2>/dev/null)" >>"$config"
  if [ -n "$echo_at" ]; then
    # Runs are vouched for by the same key, and the provider is inside: one opening, for this tenant and this port.
    sed -i '/^\[runner\]/,/^\[/s/^enabled = false/enabled = true/' "$config"
    printf '\n[[egress.opening]]\nhost = "127.0.0.1"\nnetworks = ["127.0.0.1/32"]\nports = [%s]\ntenant = "acme"\n' \
      "${echo_at##*:}" >>"$config"
  fi
fi

gateway=$(listens gateway)
api=$(listens runner.api)
admin=$(listens admin)
egress=$(listens egress)

"$tidegate" check --config "$config"
"$tidegate" run --config "$config" &
appliance=$!
# Ctrl-C reaches the appliance by itself; a second signal would cut its drain short.
trap 'wait $appliance' INT
trap 'kill -TERM $appliance 2>/dev/null; wait $appliance' TERM

ready=no
for _ in $(seq 100); do
  if is_ready; then ready=yes; break; fi
  kill -0 "$appliance" 2>/dev/null || break
  sleep 0.1
done
[ "$ready" = yes ] || { wait "$appliance"; exit $?; }

endpoint=$(sed -n 's/^id *= *"\(wh_[^"]*\)".*/\1/p' "$home/tenants/acme.toml" | head -n 1)
body=$home/delivery.json
printf '{"zen":"Keep it logically awesome.","hook_id":1}' >"$body"
# Somebody's own configuration may have no calls.
calls=
if [ -n "$egress" ] && [ -e "$home/grant.key.pem" ]; then
  calls="
A call out, by a caller that says who it is, to a host that its tenant allows:
  curl -x \"http://grant:\$($tidegate grant --config $config --tenant acme)@$egress\" https://example.com/

Where it may not go, and why:
  $tidegate explain https://169.254.169.254/ --config $config --tenant acme
"
fi
runs=
performs_runs() { # they are a moment behind deliveries
  for _ in $(seq 50); do "$tidegate" runs stat --config "$config" >/dev/null 2>&1 && return; sleep 0.1; done
  return 1
}
if [ ! -x "$provider" ]; then
  runs="
No runs are shown: there is no $provider for them to call. Build it (-p tidegate-tests --bin echo-provider) and begin anew: move
$home/ away first.
"
elif [ -z "$echo_at" ]; then
  runs="
No runs are shown: $home/ was made without a provider for them to call, and stays as it is. Move it away to begin anew.
"
elif ! performs_runs; then
  runs="
No runs are shown: none are performed. Why not:
  $tidegate runs stat --config $config
"
else
  "$tidegate" automations put --config "$config" --tenant acme deploy/example/automations/greet.yaml >/dev/null
  # The whole loop, once: a signed delivery, its run, the calls that it makes, and what can be read of them afterwards.
  execution=$("$tidegate" send --config "$config" --endpoint "$endpoint" --body "$body" --json | sed -n 's/.*"executionId":"\([^"]*\)".*/\1/p') ||
    execution=
  history=
  for _ in $(seq 50); do
    history=$("$tidegate" runs show --config "$config" --tenant acme "$execution") || true
    case $history in *"  succeeded  after "* | *"  failed  after "*) break ;; esac
    sleep 0.1
  done
  runs="
What becomes of it: the automation deploy/example/automations/greet.yaml calls a provider on this machine. One delivery was sent
already; the answer of it named its execution, $execution, and this is its history:

$(printf '%s\n' "$history" | sed 's/^/  /')

The same for one of your own:
  execution=\$($tidegate send --config $config --endpoint $endpoint --body $body --json | sed -n 's/.*\"executionId\":\"\([^\"]*\)\".*/\1/p')
  $tidegate runs show --config $config --tenant acme \$execution
  $tidegate runs list --config $config --tenant acme

The same over HTTP, as a console asks:
  curl -H \"Authorization: Bearer \$(cat $home/runner.token)\" http://$api/executions/\$execution
"
fi
cat <<TEXT

Tidegate takes deliveries on http://$gateway; metrics are on http://$admin/metrics.

A signed delivery, ready to paste:
$("$tidegate" send --config "$config" --endpoint "$endpoint" --body "$body" --print-curl | sed 's/^/  /')

The same, signed and sent for you:
  $tidegate send --config $config --endpoint $endpoint --body $body

And what was stored:
  $tidegate events list --config $config --endpoint $endpoint
$runs$calls
TEXT
wait "$appliance"
