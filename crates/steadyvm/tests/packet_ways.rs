//! The way of a VM's packets as `plan`, `status` and `doctor` tell it, of a process that holds a real VM and a real tap, in
//! namespaces of its own. Needs root and /dev/kvm.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/place.rs"]
mod place;

use place::printed;

/// A bridge with a card that cannot have functions, and VM `web` behind a tap of it.
const VM: &str = r#"
cat > /run/monitor <<'SCRIPT'
import fcntl, os, struct, sys
tap = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(tap, 0x400454ca, struct.pack('16sH22x', b'tap0', 0x1002))
kvm = os.open('/dev/kvm', os.O_RDWR)
vcpu = fcntl.ioctl(fcntl.ioctl(kvm, 0xae01, 0), 0xae41, 0)
open('/proc/thread-self/comm', 'w').write('CPU 0/KVM')
print('ready', flush=True)
sys.stdin.read()
SCRIPT
mkfifo /run/monitored /run/held
ip netns exec server python3 /run/monitor -name web,mac=52:54:00:00:00:01 < /run/held > /run/monitored &
exec 9> /run/held
read -r _ < /run/monitored
ip -n server link add br0 type bridge
ip -n server link set eth0 master br0 && ip -n server link set tap0 master br0
in_server() { ip netns exec server "$S" "$@"; }
describe() { printf '[[vm]]\nname = "web"\nclass = "rt"\n%s\n' "$1" > /run/vm.toml; }
"#;

#[test]
fn plan_status_and_doctor_tell_the_same_way() {
    if !std::path::Path::new("/dev/kvm").exists() {
        eprintln!("not tested: it needs /dev/kvm");
        return;
    }
    let said = printed(&format!(
        r#"{VM}
        describe $'nic = "eth0"\nway = "function"'
        mkdir -p /run/etc && cp /run/vm.toml /run/etc/steadyvm.toml
        mount -t overlay overlay -o lowerdir=/run/etc:/etc /etc
        in_server plan /run/vm.toml | grep '^packets' || true
        in_server status /run/vm.toml | grep '^packets' || true
        in_server doctor | grep -A2 '^packets' | tr -s ' \n' ' '; echo
        for verb in 'plan --json' 'status --json' 'doctor --json'; do
          file=/run/vm.toml; [ "$verb" != 'doctor --json' ] || file=
          in_server $verb $file 2> /run/missing | python3 -c 'import json, sys
print([(it["vm"], it["way"], it["cards"]) for it in json.load(sys.stdin)["packet_ways"]])'
        done
        describe ''
        in_server status /run/vm.toml | grep '^packets' || true"#
    ));
    let lines: Vec<&str> = said.lines().collect();
    let way = "by the shared ring of eth0: ";
    let why = "eth0 has no virtual functions (SR-IOV); leave `way` out, or write `way = \"xdp\"`";
    for line in &lines[..2] {
        assert!(
            line.starts_with(&format!("packets of VM web: {way}")),
            "{said}"
        );
        assert!(line.contains(why), "{said}");
    }
    assert!(lines[2].contains(&format!("warn VM web {way}")), "{said}");
    let json = "[('web', 'shared-ring', ['eth0'])]";
    assert_eq!(lines[3..6], [json; 3], "{said}");
    // A veth is no card.
    assert!(lines[6].contains("by no card of this host"), "{said}");
}
