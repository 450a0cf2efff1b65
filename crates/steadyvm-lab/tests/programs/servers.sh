#!/bin/sh
# Starts one server of each kind on all addresses, and returns when all of them listen. The image's
# packages were unpacked only: what their scripts would have made is made here.
#
# usage: . /programs/servers.sh

if [ -e /etc/passwd ]; then
  echo "servers.sh is for machines of the lab, which have no users yet" >&2
  exit 2
fi
umask 022
cp /programs/passwd /programs/group /etc/
mkdir -p /run/sshd /var/log/nginx /var/lib/nginx /tmp/www
head -c 100 /programs/big >/tmp/www/small
cp /programs/big /tmp/www/big
cat >/tmp/nginx.conf <<'END'
daemon off;
user root;
worker_processes 2;
pid /run/nginx.pid;
error_log stderr notice;
events { worker_connections 256; }
http {
  access_log off;
  sendfile on;
  root /tmp/www;
  server {
    listen 8080 reuseport;
    listen [::]:8080 reuseport;
    location = /status { stub_status; }
  }
}
END
cp /programs/host-key /tmp/host-key
chmod 600 /tmp/host-key

# start MARK COMMAND...: starts a server; returns when it has said MARK, by which it listens. What it
# says after that goes nowhere.
start() {
  mark=$1
  shift
  rm -f /tmp/said
  mkfifo /tmp/said
  "$@" >/tmp/said 2>&1 </dev/null &
  {
    while read -r line; do
      echo "$line"
      case $line in *"$mark"*) break ;; esac
    done <&3
    cat <&3 >/dev/null &
  } 3</tmp/said
  case $line in *"$mark"*) ;; *)
    echo "does not serve: $*"
    exit 1
    ;;
  esac
}

start 'Ready to accept' redis-server --port 6379 --bind '* -::*' --protected-mode no --save ''
# Who sourced this waits for it.
# shellcheck disable=SC2034
redis=$!
start 'server listening' memcached -u root -l 0.0.0.0 -p 11211 -t 2 -vv
start 'start worker process ' nginx -c /tmp/nginx.conf
start 'serving' caddy file-server --root /tmp/www --listen :8081
start 'started, version' dnsmasq --no-daemon --conf-file=/dev/null --no-resolv --no-hosts \
  --user=root --group=root --local=/example/ --host-record=name.example,192.0.2.7,2001:db8::7 \
  --txt-record=text.example,"$(printf %0200d 0)"
start 'Server listening' /usr/sbin/sshd -f /dev/null -D -e -h /tmp/host-key -o UsePAM=no -o StrictModes=no \
  -o AuthorizedKeysFile=/programs/user-key.pub
echo servers are up
