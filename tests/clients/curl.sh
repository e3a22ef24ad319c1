#!/usr/bin/env bash
# curl through the proxy. Says "ok NAME" for each thing that works; what is told by the environment is in clients.rs.
set -euo pipefail
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
call=(curl -sS --fail-with-body --max-time 60 --cacert "$CA" -x "$PROXY")

is() { # NAME HAVE WANT
  [ "$2" = "$3" ] || { echo "$1: $2 is not $3" >&2; exit 1; }
  echo "ok $1"
}
of() { jq -r "$1"; }

is http "$("${call[@]}" "http://$HOST/echo?a=b" | of .path)" "/echo?a=b"
is https "$("${call[@]}" "https://$HOST/echo" | of .host)" "$HOST"
answer=$(curl -sS --fail-with-body --max-time 60 -H "Authorization: Bearer $GRANT" "$BASE/echo")
is base-url "$(of .headers.authorization <<<"$answer")" "Bearer $KEY"
for scheme in http https; do
  both=$("${call[@]}" "$scheme://$HOST/echo" "$scheme://$HOST/echo" | of .connection)
  is "keep-alive-$scheme" "$(sort -u <<<"$both" | wc -l)" 1
done
head -c "$SIZE" /dev/urandom >"$scratch/up"
sum=$(sha256sum "$scratch/up" | cut -d' ' -f1)
for url in "http://$HOST" "https://$HOST"; do
  is "upload-${url%%:*}" "$("${call[@]}" -T "$scratch/up" "$url/echo" | of .sha256)" "$sum"
  "${call[@]}" -D "$scratch/head" "$url/down?bytes=$SIZE" -o "$scratch/down"
  want=$(grep -i '^x-sha256:' "$scratch/head" | tr -d '\r' | cut -d' ' -f2)
  is "download-${url%%:*}" "$(sha256sum "$scratch/down" | cut -d' ' -f1)" "$want"
done
curl -sS --fail-with-body --max-time 60 -H "Authorization: Bearer $GRANT" -T "$scratch/up" "$BASE/echo" >"$scratch/echo"
is upload-base-url "$(of .sha256 <"$scratch/echo")" "$sum"
for scheme in http https; do
  is "redirect-$scheme" "$("${call[@]}" -L "$scheme://$HOST/redirect?to=$scheme://$OTHER/echo" | of .host)" "$OTHER"
done
followed=$(curl -sS --fail-with-body --max-time 60 -D "$scratch/head" -H "Authorization: Bearer $GRANT" \
  -H 'Tidegate-Follow-Redirects: 3' "$BASE/redirect?to=/echo&status=307" | of .path)
is redirect-base-url "$followed" /echo
grep -qi '^tidegate-hops:' "$scratch/head" && echo "ok hops"
# The first event is there before the last one was sent.
first=$("${call[@]}" -N "https://$HOST/events" | { read -r line; date +%s%N; cat >/dev/null; })
is events "$([ $(($(date +%s%N) - first)) -gt 300000000 ] && echo early)" early
is refused "$(curl -s -o /dev/null -w '%{http_connect}' -x "$PROXY" "https://$DENIED/" || true)" 403
is unknown "$(curl -s -o /dev/null -w '%{http_connect}' -x "$PROXY_ANONYMOUS" "https://$HOST/" || true)" 407
is unknown-base-url "$(curl -s -o /dev/null -w '%{http_code}' "$BASE/echo")" 401
# By the variables that most programs heed.
is environment "$(HTTPS_PROXY=$PROXY curl -sS --max-time 60 --cacert "$CA" "https://$HOST/echo" | of .host)" "$HOST"
