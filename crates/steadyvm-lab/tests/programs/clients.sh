#!/bin/sh
# Asks each server of servers.sh, and says what it got: one line a fact, the same wherever client and
# server run. In the end redis is told to go.
#
# usage: clients.sh ADDRESS    with the directory of `big` and `user-key` as the working directory
set -eu
server=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

digest() { sha256sum | cut -d ' ' -f 1; }

# Each benchmark's count is what the server has counted.
redis() { redis-cli -h "$server" "$@"; }
redis-benchmark -h "$server" -n 1000 -c 20 -q -t set,incr,lpush,lpop >/dev/null
redis-benchmark -h "$server" -n 2000 -c 5 -P 16 -q -t get >/dev/null
for command in set incr lpush lpop get; do
  redis info commandstats | sed -n "s/^cmdstat_\($command\):calls=\([0-9]*\),.*/redis \1: \2/p"
done
echo "redis counter: $(redis get counter:__rand_int__)"
echo "redis list: $(redis llen mylist)"
# shellcheck disable=SC2094 # the redis of `set` has no file
redis -x set big <big >/dev/null
echo "redis big: $(redis --raw get big | head -c "$(stat -c %s big)" | digest)"

head -c 900000 big >"$work/value"
memccp --servers="$server" --set "$work/value"
echo "memcached value: $(memccat --servers="$server" value | head -c 900000 | digest)"
memcslap --servers="$server" --concurrency=4 --execute-number=100 --test=set >/dev/null
memcstat --servers="$server" | sed -n 's/^[[:space:]]*\(cmd_set\|get_hits\): /memcached \1: /p'

echo "nginx wrk: $(wrk -t 2 -c 10 -d 2s "http://$server:8080/small" | grep -E 'requests in|errors|Non-2xx')"
echo "nginx big: $(curl -sS "http://$server:8080/big" | digest)"
echo "nginx requests: $(curl -sS "http://$server:8080/status" | sed -n '3s/.* \([0-9]*\) $/\1/p')"

echo "go hey: $(hey -n 300 -c 10 "http://$server:8081/small" | grep -E '\[|rror' | grep -v '|' | tr -s '[:space:]' ' ')"
echo "go big: $(curl -sS "http://$server:8081/big" | digest)"
echo "go part: $(curl -sS -r 1000-1999 "http://$server:8081/big" | digest)"

answer() { dig "@$server" +short "$@" | tr '\n' ' '; }
echo "dns address: $(answer name.example A)$(answer name.example AAAA)"
echo "dns over tcp: $(answer +tcp name.example)"
echo "dns reverse: $(answer -x 192.0.2.7)"
echo "dns text: $(answer text.example TXT | wc -c)"
echo "dns unknown: $(dig "@$server" nothing.example | sed -n 's/.*status: \([A-Z]*\),.*/\1/p')"

cp user-key "$work"
chmod 600 "$work/user-key"
remote() {
  ssh -i "$work/user-key" -o BatchMode=yes -o LogLevel=ERROR -o StrictHostKeyChecking=no \
    -o UserKnownHostsFile=/dev/null "root@$server" "$@"
}
echo "ssh there: $(remote sha256sum <big | cut -d ' ' -f 1)"
echo "ssh back: $(remote cat /programs/big </dev/null | digest)"
echo "ssh exit: $(remote exit 7 </dev/null || echo $?)"

redis shutdown || true
echo "all asked"
