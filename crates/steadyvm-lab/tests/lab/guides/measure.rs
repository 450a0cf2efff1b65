//! docs/guide/measure.md, with a client on another machine, which one reaches by ssh, and Debian's collector of metrics.

use std::process::Command as Program;

use crate::guides::reader::{
    FILE, RANKS, Reader, end_web, keep_state, press_control_c, require_restored, spawn,
};
use crate::support::debian::{self, DebianHost};
use crate::support::host_program::host_program;
use crate::support::libvirt::{PATIENCE, STEADY_CLOCK, await_line, define_with, inside, write};

/// What the guide on measuring takes for granted: a VM with this address, and another machine that one reaches by ssh
/// and that reaches the VM by the card.
const CLIENTS: &str = "
ip address add 192.0.2.1/24 dev br-rt
ip netns add client
ip link add client type veth peer name eth0 netns client
ip link set client master br-rt up
ip -n client link set lo up
ip -n client address add 192.0.2.20/24 dev eth0
ip -n client link set eth0 up
echo '192.0.2.20 client client.example' >> /etc/hosts
mkdir -p /root/.ssh /run/sshd
[ -e /root/.ssh/id_ed25519 ] || ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys
chmod 700 /root/.ssh; chmod 600 /root/.ssh/authorized_keys
ssh-keygen -A > /dev/null
# The package asks for a file of settings as it is installed.
ip netns exec client /usr/sbin/sshd -f /dev/null -o UsePAM=no -o PidFile=/run/sshd.pid
until ssh -o StrictHostKeyChecking=accept-new client true && ssh -o StrictHostKeyChecking=accept-new client.example true; do :; done
";

#[test]
#[ignore = "needs the lab: make guide-tests"]
fn a_host_is_measured_as_the_guide_says() {
    const PAGE: &str = "docs/guide/measure.md";
    const TEST: &str = "measure.rs::a_host_is_measured_as_the_guide_says";
    let host = debian::host();
    keep_state(&host);
    write(&host, FILE, RANKS);
    inside(&host, CLIENTS);
    host.outside()
        .ip("address add 192.0.2.9/24 dev rt")
        .unwrap();
    let mut reader = Reader::new(&host);
    let by_hand = |words: &str| {
        if words.starts_with("steadyvm netrt serve") {
            define_with(&host, "web", "192.0.2.10", STEADY_CLOCK, words);
            inside(&host, "virsh --quiet start web");
            await_line(&host, "web", "ready");
        } else if words == "steadyvm top" {
            let mut top = spawn(&host, words);
            top.wait_for_line("web", PATIENCE).unwrap();
            press_control_c(top);
        } else if words.starts_with("steadyvm explain") {
            explain(&host, words);
        } else {
            return false;
        }
        true
    };
    reader.follow(PAGE, TEST, by_hand);
    inside(
        &host,
        "grep -q 'with / without' /root/out/measure/report.html",
    );
    require_collected(&host);
    reader.follow("README.md", TEST, by_hand);
    reader.require_no_difference();
    // Other guides' plans know nothing of this host.
    inside(
        &host,
        "steadyvm undo; rm /var/lib/steadyvm/calibration.toml",
    );
    end_web(&host);
    inside(
        &host,
        "pkill -F /run/sshd.pid; ip netns delete client; ip address delete 192.0.2.1/24 dev br-rt",
    );
    require_restored(&host);
}

/// Requests come in by the card while it records.
fn explain(host: &DebianHost, words: &str) {
    let mut recording = spawn(host, words);
    recording.wait_for_line("recording", PATIENCE).unwrap();
    let client = ["netrt", "client", "192.0.2.10:7700", "--samples", "20"];
    let sent = host.outside().enter(|| {
        let mut client_of = Program::new(host_program());
        Ok(client_of.args(client).output().unwrap())
    });
    let sent = sent.unwrap();
    assert!(sent.status.success(), "{sent:?}");
    let said = recording.finish(PATIENCE).unwrap();
    println!("# {words}\n{}", said.text());
    assert_eq!(said.status.shell_code(), 0, "{}", said.text());
    assert!(said.text().contains("wait"), "{}", said.text());
}

/// Debian's collector takes the file that the guide writes, with the option that the guide names.
fn require_collected(host: &DebianHost) {
    inside(
        host,
        "echo 'ARGS=\"--collector.textfile.directory=/var/lib/steadyvm/metrics\"' \
         > /etc/default/prometheus-node-exporter",
    );
    inside(host, "systemctl start prometheus-node-exporter.service");
    let metrics = inside(
        host,
        "until curl --silent --fail http://localhost:9100/metrics > /run/metrics; do :; done; \
         systemctl stop prometheus-node-exporter.service; \
         grep -E '^(steadyvm_|node_textfile_scrape_error)|^# .* steadyvm_' /run/metrics",
    );
    assert!(
        metrics.contains("node_textfile_scrape_error 0\n"),
        "{metrics}"
    );
    assert!(metrics.contains("\nsteadyvm_"), "{metrics}");
}
