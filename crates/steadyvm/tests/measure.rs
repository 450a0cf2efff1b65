//! `steadyvm measure` on this machine, without the lab: in mounts and namespaces of its own, where the one setting is a file
//! that stands in for a sysctl of the kernel. Needs root, as unshare(1) and `ip netns` do.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/place.rs"]
mod place;

use place::printed;

#[test]
fn a_service_is_measured_both_ways_and_has_a_report() {
    let said = printed(
        "serve; \"$S\" apply /run/site.toml >&2; \"$S\" \"${MEASURE[@]}\" --rounds 3 --samples 30 --markdown /run/page.md; setting
         ls /run/out; grep -c '^without,3,netrt_idle' /run/out/samples.csv; grep -c 'round trips' /run/page.md",
    );
    let row = |name: &str| {
        said.lines()
            .any(|line| line.trim().starts_with(&format!("{name} ")))
    };
    assert!(
        row("without") && row("with") && said.contains("with / without"),
        "{said}"
    );
    let rest: Vec<&str> = said.lines().skip_while(|line| *line != "64").collect();
    let files = "figures.csv meta.json report.html results.json samples.csv tables.txt with.hgrm without.hgrm";
    assert_eq!(rest[..9].join(" "), format!("64 {files}"), "{said}");
    assert_eq!(
        rest[9], "10",
        "a third of the samples are of the third round: {said}"
    );
}

#[test]
fn what_was_in_force_is_again_after_every_signal() {
    let said = printed(
        "serve; \"$S\" apply /run/site.toml >&2
         for signal in INT TERM HUP KILL; do
           \"$S\" \"${MEASURE[@]}\" --rounds 2 --samples 1000000 > /run/said 2>&1 & run=$!
           until [ \"$(setting)\" = 300 ]; do :; done
           kill -$signal $run; code=0; wait $run || code=$?
           flock /run/steadyvm/host/measure.lock true
           while pgrep -f 'netrt clien[t]|restore-at-en[d]' > /run/left; do :; done
           echo $signal $code $(setting)
         done",
    );
    let expected = "INT 130 64\nTERM 143 64\nHUP 129 64\nKILL 137 64\n";
    assert_eq!(said, expected);
}

#[test]
fn what_was_not_in_force_is_not_afterwards_and_nothing_is_changed_in_vain() {
    let said = printed(
        "code=0; \"$S\" \"${MEASURE[@]}\" 2>&1 || code=$?; echo $code $(setting)
         \"$S\" apply /run/site.toml >&2
         code=0; \"$S\" \"${MEASURE[@]}\" > /run/said 2>&1 || code=$?; echo $code $(setting)
         \"$S\" undo >&2; serve
         \"$S\" \"${MEASURE[@]}\" --rounds 2 --samples 4 --file /run/site.toml > /run/said 2>&1; echo by file $(setting)",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("nothing is in force"), "{said}");
    assert_eq!(lines[1..], ["2 300", "3 64", "by file 300"], "{said}");
}

#[test]
fn a_watch_keeps_off_meanwhile_and_status_tells_what_it_mended() {
    let said = printed(
        "serve; \"$S\" watch /run/site.toml 2> /run/watched & watch=$!
         until [ \"$(setting)\" = 64 ]; do :; done
         \"$S\" \"${MEASURE[@]}\" --rounds 2 --samples 30 > /run/said 2>&1; setting
         grep -o '\"watch\": true' /run/out/meta.json
         echo 99 > /proc/sys/net/core/netdev_budget
         kill -HUP $watch
         until [ \"$(setting)\" = 64 ] && [ -e /run/steadyvm/host/drift.json ]; do :; done
         \"$S\" status /run/site.toml; kill $watch",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["64", "\"watch\": true"], "{said}");
    assert!(said.contains("a watch has set 1 settings"), "{said}");
}

#[test]
fn round_trips_are_held_against_the_plans_bound_and_status_says_it() {
    let said = printed(
        r#"serve
        cp /run/site.toml /run/planned.toml
        for name in web cache; do
          printf '[[service]]\nname = "%s"\nvm = "%s"\nc = "1ms"\nt = "1s"\nlimit = "500ms"\n' $name $name >> /run/planned.toml
        done
        printf '[host]\npcpus = 2\n' >> /run/planned.toml
        kept() { "$S" status /run/planned.toml 2>&1 | grep '^service' || true; }
        code "$S" "${MEASURE[@]}" --file /run/planned.toml --rounds 2 --samples 10
        tr '\n' ' ' < /run/said | grep -o 'with: its plan has 2 services.*' | tr -s ' '
        code "$S" "${MEASURE[@]}" --file /run/planned.toml --rounds 2 --samples 10 --bound none; cat /run/said
        code "$S" "${MEASURE[@]}" --file /run/planned.toml --rounds 2 --samples 10 --bound web
        tr '\n' ' ' < /run/said | tr -s ' ' | grep -o 'with: the plan.s bound of service web.*none was over it'
        kept
        "$S" apply /run/planned.toml >&2
        code "$S" "${MEASURE[@]}" --file /run/planned.toml --rounds 2 --samples 10 --bound web
        kept
        "$S" status --json /run/planned.toml 2> /dev/null | grep -c '"answered": 10,' || true"#,
    );
    let mut lines = said.lines();
    assert_eq!(lines.next(), Some("0"), "{said}");
    assert!(
        lines
            .next()
            .unwrap()
            .contains("says which one is measured: web, cache"),
        "{said}"
    );
    let none = "2\nsteadyvm: --bound none: no row's plan has a service of that name; ";
    assert!(said.contains(none), "{said}");
    let sentence = "of 10 round trips the longest took ";
    // Of a file that is not in force, only the report has it.
    assert_eq!(said.matches(sentence).count(), 2, "{said}");
    assert_eq!(
        said.matches("service web in web: bound ").count(),
        2,
        "{said}"
    );
    assert!(
        said.contains("service web, measured ") && said.contains(" s ago: of 10"),
        "{said}"
    );
    assert!(!said.contains("service cache, measured"), "{said}");
    assert!(said.ends_with("\n1\n"), "{said}");
}

/// The way to the client's machine stalls in the second phase, as an ssh whose other end has gone.
#[test]
fn a_client_that_stalls_is_not_waited_for_and_what_was_in_force_is_again() {
    let said = printed(
        r#"serve; "$S" apply /run/site.toml >&2
        cat > /run/stalls <<'SCRIPT'
#!/bin/bash
shift
ip netns exec client "$S" "$@" | while IFS= read -r line; do
  echo "$line"
  # The first client is a trial.
  [[ ! -e /run/tried || $line != *'"answered":'[1-9]* ]] || pkill -STOP -f 'netrt clien[t]'
done
touch /run/tried
SCRIPT
        chmod +x /run/stalls
        code "$S" "${TO[@]}" --remote /run/stalls --rounds 2 --samples 1000000; setting
        cat /run/said"#,
    );
    assert!(said.starts_with("3\n64\n"), "{said}");
    assert!(said.contains("no request was answered for"), "{said}");
}

#[test]
fn a_measurement_that_is_stopped_is_ended_when_its_time_is_over() {
    let said = printed(
        r#"serve; "$S" apply /run/site.toml >&2
        "$S" "${MEASURE[@]}" --rounds 2 --samples 600 > /run/measured 2>&1 & run=$!
        await is 300
        kill -STOP $run
        code wait $run; flock /run/steadyvm/host/measure.lock true; setting; cat /run/measured"#,
    );
    // Only a shell that waits for it knows that it was killed.
    assert!(said.starts_with("137\n64\n"), "{said}");
    assert!(said.contains("is ended"), "{said}");
}

/// The client's wrapper changes the setting while it is measured with it, in the first round.
#[test]
fn a_round_in_which_a_setting_changed_is_left_out_and_named() {
    let said = printed(
        r#"serve; "$S" apply /run/site.toml >&2
        cat > /run/changes <<'SCRIPT'
#!/bin/bash
shift
if [ -e /run/tried ] && [ ! -e /run/changed ] && [ "$(< /proc/sys/net/core/netdev_budget)" = 64 ]; then
  echo 99 > /proc/sys/net/core/netdev_budget
  touch /run/changed
fi
touch /run/tried
exec ip netns exec client "$S" "$@"
SCRIPT
        chmod +x /run/changes
        code "$S" "${TO[@]}" --remote /run/changes --rounds 2 --samples 40; setting
        grep -o 'round 1, with: the settings changed' /run/out/results.json
        cut -d, -f1,2 /run/out/samples.csv | sort -u"#,
    );
    assert!(said.starts_with("0\n64\nround 1, with"), "{said}");
    assert!(
        said.contains("without,1") && !said.contains("with,2"),
        "{said}"
    );
}
