//! `steadyvm measure` of several rows, and of kernels across reboots, in a place of its own. Files stand in for what the kernel
//! says of itself: another text in them is another boot. Needs root, as unshare(1) and `ip netns` do.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/place.rs"]
mod place;

use place::printed;

/// `boots RELEASE KIND` boots a kernel: PREEMPT_RT or another word of its version.
const KERNELS: &str = r##"
for name in osrelease version random/boot_id; do
  touch "/run/${name##*/}" && mount --bind "/run/${name##*/}" "/proc/sys/kernel/$name"
done
boots() {
  echo "$1" > /run/osrelease; echo "#1 SMP $2 x86_64" > /run/version
  cat /proc/sys/kernel/random/uuid > /run/boot_id
}
boots 6.12.1-amd64 PREEMPT_DYNAMIC
printf '[net]\nbudget_packets = 99\n' > /run/other.toml
"##;

fn in_kernels(script: &str) -> String {
    printed(&format!("{KERNELS}{script}"))
}

#[test]
fn files_and_methods_are_measured_in_turn_and_have_one_report() {
    let said = in_kernels(
        r#"serve; "$S" apply /run/site.toml >&2
        code "$S" "${MEASURE[@]}" --methods vanilla --files /run/site.toml,/run/other.toml --rounds 4 --samples 20 \
          --markdown /run/page.md; setting
        cut -d, -f1,2 /run/out/samples.csv | tail -n +2 | sort | uniq -c | tr -s ' '
        head -1 /run/page.md; grep -c '^| Row ' /run/page.md; cat /run/said"#,
    );
    let row = |name: &str| {
        let mut lines = said.lines();
        lines.any(|line| line.trim().starts_with(&format!("{name} ")))
    };
    assert!(said.starts_with("0\n64\n 5 other,1\n"), "{said}");
    for name in ["vanilla", "site", "other"] {
        for round in 1..=4 {
            assert!(said.contains(&format!(" 5 {name},{round}\n")), "{said}");
        }
        assert!(row(name), "{said}");
    }
    assert!(said.contains("# Which settings keep a service of this host steadiest?\n3\n"));
    assert!(
        said.contains("site / vanilla") && said.contains("other / site"),
        "{said}"
    );
}

/// The client's wrapper notes what is in force while it measures.
#[test]
fn each_row_is_measured_with_its_own_settings() {
    let said = in_kernels(
        r#"serve
        printf '#!/bin/bash\nshift\necho $(< /proc/sys/net/core/netdev_budget) >> /run/seen\nexec ip netns exec client "$S" "$@"\n' > /run/notes
        chmod +x /run/notes
        code "$S" "${TO[@]}" --remote /run/notes --files /run/site.toml,/run/other.toml --methods vanilla \
          --rounds 2 --samples 2; setting; tail -n +2 /run/seen | tr '\n' ' '"#,
    );
    assert_eq!(said, "0\n300\n300 64 99 99 64 300 ");
}

#[test]
fn a_run_says_which_kernel_to_boot_and_goes_on_there() {
    let said = in_kernels(
        r#"serve; "$S" apply /run/site.toml >&2; cd /run
        code "$S" "${MEASURE[@]}" --files site.toml,other.toml --kernels 6.12,6.12-rt --save run.json \
          --rounds 2 --samples 4; setting; grep -o 'reboot into.*' /run/said
        code "$S" measure --resume run.json; cat /run/said
        "$S" undo >&2; boots 6.12.1-rt-amd64 PREEMPT_RT; cd /
        code "$S" measure --resume /run/run.json; setting
        grep -o 'site@6.12-rt / site@6.12' /run/said | head -1; grep -c 'reboot into' /run/said || true
        grep -o 'measured in different boots' /run/out/results.json
        grep -o '"kernel": "6.12.1-amd64, 6.12.1-rt-amd64"' /run/out/meta.json
        code "$S" measure --resume /run/run.json; cat /run/said"#,
    );
    let lines: Vec<&str> = said.lines().collect();
    let next = "reboot into 6.12-rt, then run: steadyvm measure --resume /run/run.json";
    assert_eq!(lines[..4], ["0", "64", next, "2"], "{said}");
    assert!(
        lines[4].contains("no row is for the kernel that runs, 6.12.1-amd64 (6.12)"),
        "{said}"
    );
    let pair = "site@6.12-rt / site@6.12";
    assert_eq!(lines[5..9], ["0", "300", pair, "0"], "{said}");
    let kernels = "\"kernel\": \"6.12.1-amd64, 6.12.1-rt-amd64\"";
    assert_eq!(
        lines[9..12],
        ["measured in different boots", kernels, "2"],
        "{said}"
    );
    assert!(lines[12].contains("all rounds are measured"), "{said}");
}

#[test]
fn a_kept_run_that_was_ended_leaves_the_host_as_it_was_and_goes_on() {
    let said = in_kernels(
        r#"serve; "$S" apply /run/site.toml >&2
        "$S" "${MEASURE[@]}" --methods vanilla --files /run/other.toml --save /run/run.json \
          --rounds 40 --samples 400 > /run/measured 2>&1 & run=$!
        until grep -q '"rounds_over":[1-9]' /run/run.json 2> /run/missing; do :; done
        kill -INT $run; code wait $run; setting
        grep -o 'go on by: .*' /run/measured
        before=$(grep -o '"boot":0' /run/run.json | wc -l)
        code "$S" measure --resume /run/run.json; setting
        grep -o '"boot":0' /run/run.json | wc -l | grep -qx "$before" && echo kept
        grep -o '"boot":[01]' /run/run.json | wc -l"#,
    );
    let lines: Vec<&str> = said.lines().collect();
    let go_on = "go on by: steadyvm measure --resume /run/run.json";
    let expected = ["130", "64", go_on, "0", "64", "kept", "80"];
    assert_eq!(lines, expected, "{said}");
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_is_changed() {
    let said = in_kernels(
        r#"serve
        refused() { code "$S" "${MEASURE[@]}" "$@"; grep -v '^$' /run/said | head -1; }
        refused --methods vanilla,preempt-rt --nic eth0 --vm web
        refused --methods fast,vanilla
        refused --methods vanilla,vanilla
        refused --methods vanilla --files /run/missing.toml
        refused --files /run/site.toml
        refused --files /run/site.toml,/run/other.toml --kernels 6.12
        touch /run/there.json
        refused --files /run/site.toml,/run/other.toml --save /run/there.json
        refused --methods vanilla --files /run/site.toml --process 1 --save /run/new.json
        refused --resume /run/there.json
        code "$S" measure --resume /run/there.json --samples 9; head -1 /run/said
        ls /run/new.json 2> /run/missing || setting"#,
    );
    let mut lines = said.lines();
    for told in [
        "preempt-rt waits for a kernel with PREEMPT_RT; keep the run with --save FILE",
        "unknown method `fast`",
        "two rows would be called vanilla",
        "cannot read /run/missing.toml: No such file",
        "site alone is compared with nothing",
        "required arguments were not provided",
        "the file is there; go on with its run by `steadyvm measure --resume /run/there.json`",
        "a process has another number after a reboot",
        "cannot be used with",
        "cannot be used with",
    ] {
        assert_eq!(lines.next(), Some("2"), "{told}: {said}");
        let line = lines.next().unwrap_or_default();
        assert!(line.contains(told), "{told}: {said}");
    }
    assert_eq!(lines.next(), Some("300"), "{said}");
}
