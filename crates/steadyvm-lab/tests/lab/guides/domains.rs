//! docs/guide/libvirt.md, with Debian's `AppArmor` profiles in force.

use crate::guides::reader::{
    FILE, RANKS, Reader, end_web, keep_state, require_budgets, require_restored, start_web,
};
use crate::support::debian;
use crate::support::libvirt::{
    STEADY_CLOCK, await_guest, define, inside, monitor, threads, try_inside, write,
};

/// Where hooks of administrators lie.
const OWN_HOOK: &str = "/etc/libvirt/hooks/qemu.d/50-own";

/// Debian confines libvirtd, and what a hook is a link to must be what libvirtd may execute: a program in a place of its
/// own is refused, and with it every domain, those that run when libvirtd starts again among them. The package's hook is none such.
#[test]
#[ignore = "needs the lab: make guide-tests"]
fn under_apparmor_the_packages_hook_runs_and_one_linked_elsewhere_stops_every_domain() {
    let host = debian::host();
    let libvirtd = inside(&host, "systemctl show -P MainPID libvirtd.service");
    let libvirtd = libvirtd.trim().parse().unwrap();
    assert_eq!(debian::confinement(&host, libvirtd), "libvirtd (enforce)");
    write(&host, FILE, RANKS);
    start_web(&host);
    let confined = debian::confinement(&host, monitor(&host, "web"));
    assert!(
        confined.starts_with("libvirt-") && confined.ends_with(" (enforce)"),
        "{confined}"
    );
    let is_ranked = || {
        threads(&host, "web")
            .iter()
            .any(|it| it.is_vcpu() && it.policy.contains("priority: 70"))
    };
    assert!(is_ranked(), "{:#?}", threads(&host, "web"));
    inside(
        &host,
        "systemctl restart libvirtd.service; [ \"$(virsh domstate web)\" = running ]",
    );

    for place in ["/opt/steadyvm/bin", "/usr/local/bin"] {
        // The first restart ends the domain that runs: libvirtd asks its hooks about it.
        inside(
            &host,
            &format!(
                "mkdir -p {place}; cp /bin/true {place}/a-hook; ln -sf {place}/a-hook {OWN_HOOK}; dmesg -C; \
                 systemctl restart libvirtd.service; until [ \"$(virsh domstate web)\" = 'shut off' ]; do :; done"
            ),
        );
        let (code, said) = try_inside(&host, "virsh --quiet start web");
        println!("{place}: {said}");
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("Hook script execution failed"), "{said}");
        let log = inside(&host, "dmesg");
        let denied = |line: &str| {
            line.contains("apparmor=\"DENIED\"")
                && line.contains(&format!("name=\"{place}/a-hook\""))
        };
        assert!(log.lines().any(denied), "{log}");
    }

    inside(
        &host,
        &format!("rm {OWN_HOOK}; systemctl restart libvirtd.service"),
    );
    inside(&host, "virsh --quiet start web");
    await_guest(&host, "web");
    assert!(is_ranked(), "{:#?}", threads(&host, "web"));
    end_web(&host);
    inside(
        &host,
        &format!("steadyvm undo; rm {FILE} /opt/steadyvm/bin/a-hook /usr/local/bin/a-hook"),
    );
}

#[test]
#[ignore = "needs the lab: make guide-tests"]
fn a_domain_has_its_budget_as_the_guide_says() {
    const PAGE: &str = "docs/guide/libvirt.md";
    let host = debian::host();
    keep_state(&host);
    for (name, address) in [("game", "10.77.1.3"), ("other", "10.77.1.4")] {
        define(&host, name, address, STEADY_CLOCK);
    }
    let mut reader = Reader::new(&host);
    reader.follow(
        PAGE,
        "domains.rs::a_domain_has_its_budget_as_the_guide_says",
        |words| {
            if words.contains("--remove") {
                require_budgets(&threads(&host, "game"));
                let confined = debian::confinement(&host, monitor(&host, "game"));
                assert!(confined.ends_with(" (enforce)"), "{confined}");
                // What has no budget starts beside it, and runs on as libvirtd starts again.
                inside(
                    &host,
                    "virsh --quiet start other; systemctl restart libvirtd.service",
                );
                inside(&host, "virsh list | grep -c ' running' | grep -qx 2");
                require_budgets(&threads(&host, "game"));
            }
            false
        },
    );
    reader.require_no_difference();
    for name in ["game", "other"] {
        inside(
            &host,
            &format!("virsh --quiet destroy {name}; virsh --quiet undefine {name}"),
        );
    }
    inside(
        &host,
        "! ls /run/steadyvm.d/*.toml 2> /dev/null; steadyvm undo",
    );
    require_restored(&host);
}
