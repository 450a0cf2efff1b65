#!/bin/bash
# Boots guests of `steadyvm up` in pairs, beside two pairs that idle, for T seconds, each of V VCPUs; counts those that come
# up. In the emulated host: steadyvm lab run -- bash -c "T=420; V=2; $(cat docs/measurements/guest-boots.sh)"
# Of a guest that stays silent for a minute it shows its threads and half a second of KVM's tracepoints.
cd /tmp; ip link set lo up
mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null
cat > vm.toml <<END
name = "guest"
kernel = "/boot/guest-kernel"
initramfs = "/boot/guest-initramfs"
cmdline = """console=ttyS0 pci=off panic=-1 quiet loglevel=4 tsc=reliable no_timer_check -- sh -c "insmod /usr/local/lib/steadyvm_sockets.ko; exec steadyvm netrt serve 0.0.0.0:7000 " """
vcpus = ${V:-1}
memory_mib = 128
[[disk]]
path = "/dev/vda"
read_only = true
[sockets]
namespace = "new"
END
ok=0; bad=0; begin=$SECONDS; idle=0
while [ $((SECONDS-begin)) -lt ${T:-200} ]; do
for side in a b; do steadyvm up vm.toml < /dev/null > out$side 2>&1 & eval p$side=$!; done
for side in a b; do eval p=\$p$side; t=0
while [ $t -lt 120 ]; do grep -q ready out$side && break; kill -0 $p 2>/dev/null || break; sleep 0.5; t=$((t+1)); done
if grep -q ready out$side; then ok=$((ok+1)); else bad=$((bad+1)); echo "failed after $t: $(kill -0 $p 2>/dev/null && echo silent) $(tail -1 out$side)"
if kill -0 $p 2>/dev/null; then
 echo > /sys/kernel/tracing/trace; ls /proc/$p/task | tr '\n' ' ' > /tmp/tids
 for t in $(cat /tmp/tids); do echo "$t $(cat /proc/$p/task/$t/comm) $(cat /proc/$p/task/$t/stat | cut -d' ' -f3,14,15,39)"; done
 echo $(cat /tmp/tids) > /sys/kernel/tracing/set_event_pid
 echo 1 > /sys/kernel/tracing/events/kvm/enable; sleep 0.5; echo 0 > /sys/kernel/tracing/events/kvm/enable
 grep -v '^#' /sys/kernel/tracing/trace | wc -l; grep -v '^#' /sys/kernel/tracing/trace | tail -40
fi; fi
done
if [ $idle -lt 2 ]; then idle=$((idle+1)); else kill -9 $pa $pb; wait $pa $pb 2>/dev/null; fi
done
echo "ok $ok bad $bad"
