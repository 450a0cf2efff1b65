//! A place of a test's own on this machine: mounts and namespaces, where the one setting is a file that stands in for a sysctl of
//! the kernel. Needs root, as unshare(1) and `ip netns` do.

use std::process::{Command, Stdio};

/// Mounts of its own, with an own /run, and two network namespaces. `$S` is the program, `setting` prints what is in force: 300 is
/// what was there before, 64 what the file wants. `code` prints a command's exit code, and keeps what it says in /run/said.
const PLACE: &str = r#"
set -eu
mount -t tmpfs none /run
mkdir -p /run/steadyvm && chmod 755 /run/steadyvm
echo 300 > /run/budget
mount --bind /run/budget /proc/sys/net/core/netdev_budget
setting() { echo $(< /proc/sys/net/core/netdev_budget); }
code() { local code=0; "$@" > /run/said 2>&1 || code=$?; echo $code; }
await() { until "$@"; do :; done; }
is() { [ "$(setting)" = "$1" ]; }
ip netns add server && ip netns add client
ip link add name eth0 netns server type veth peer name eth0 netns client
ip -n server address add 10.99.7.1/24 dev eth0 && ip -n server link set eth0 up
ip -n client address add 10.99.7.2/24 dev eth0 && ip -n client link set eth0 up
printf '[net]\nbudget_packets = 64\n' > /run/site.toml
TO=(measure --service 10.99.7.1:7700 --rate 500 --warmup 5 --out /run/out)
MEASURE=("${TO[@]}" --netns client)
serve() {
  mkfifo /run/served
  ip netns exec server "$S" netrt serve 10.99.7.1:7700 > /run/served &
  read -r _ < /run/served
}
"#;

/// What a script prints there; it must end well.
pub fn printed(script: &str) -> String {
    let done = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", "-c", &format!("{PLACE}{script}")])
        .env("S", env!("CARGO_BIN_EXE_steadyvm"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{error}");
    said
}
