//! The guides, typed: every block of the README and of docs/guide is typed by a test from the page's own text, on a host as
//! Debian 13 boots it, or the page says why not. `make guide-tests`; what needs no lab is of `make unit-tests`.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

#[path = "support/debian.rs"]
mod debian;
#[path = "support/guide.rs"]
mod guide;
#[allow(dead_code, reason = "it uses a part of it")]
#[path = "support/libvirt.rs"]
mod libvirt;

use std::fs;
use std::process::Command as Program;

use debian::DebianHost;
use guide::{Block, Command, Content};
use libvirt::{
    PATIENCE, STEADY_CLOCK, await_guest, await_line, define, define_with, inside, monitor, threads,
    try_inside, write,
};
use steadyvm_lab::agent::Process;

const HOST_PAGE: &str = "docs/guide/host.md";
const FILE: &str = "/etc/steadyvm.toml";
/// The host's file of the README and of the guide.
const RANKS: &str =
    "[[nic]]\nname = \"eth1\"\nclass = \"rt\"\n[[vm]]\nname = \"web\"\nclass = \"rt\"\n";

#[test]
fn every_block_of_every_guide_is_typed_or_says_why_not() {
    let mut faults = Vec::new();
    for path in guide::pages() {
        for block in guide::blocks(&guide::page(&path)) {
            let fault = block.fault().or_else(|| wrong_test(&path, &block));
            faults.extend(fault.map(|it| format!("{path}:{}: {it}", block.line)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What is wrong with the test that a block names: it is not there, or does not read the page.
fn wrong_test(path: &str, block: &Block) -> Option<String> {
    let test = block.typed_by.as_ref()?;
    let (file, name) = test.split_once("::")?;
    let place = guide::root().join("crates/steadyvm/tests").join(file);
    let source = fs::read_to_string(place).unwrap_or_default();
    let is_there = source.contains(&format!("fn {name}()")) && source.contains(path);
    (!is_there).then(|| format!("{test} is not there, or does not name {path}"))
}

/// Words that stand in the text, or in blocks that nobody types, are words that the program takes.
#[test]
fn every_command_of_a_guide_has_options_that_there_are() {
    let mut faults = Vec::new();
    for path in guide::pages() {
        let page = guide::page(&path);
        let mut all = guide::inline_commands(&page);
        for block in guide::blocks(&page) {
            if let Content::Commands(commands) = block.content {
                all.extend(commands.into_iter().map(|it| it.words));
            }
        }
        for words in all {
            let words = words.strip_prefix("sudo ").unwrap_or(&words);
            if let Some(words) = words.strip_prefix("steadyvm ") {
                let fault = unknown(words);
                faults.extend(fault.map(|it| format!("{path}: steadyvm {words}: {it}")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What of these words the program does not know: a verb, or an option of it.
fn unknown(words: &str) -> Option<String> {
    // What follows `--` is another program's.
    let words: Vec<&str> = words
        .split_whitespace()
        .take_while(|it| *it != "--")
        .collect();
    let is_verb = |it: &&&str| {
        it.chars()
            .all(|letter| letter.is_ascii_lowercase() || letter == '-')
    };
    let verbs: Vec<&str> = words.iter().take_while(is_verb).copied().collect();
    // A verb may have words of its own after it: the longest row of verbs that has a help.
    let help = (1..=verbs.len()).rev().find_map(|length| {
        let asked = Program::new(env!("CARGO_BIN_EXE_steadyvm"))
            .args(&verbs[..length])
            .arg("--help")
            .output()
            .unwrap();
        asked
            .status
            .success()
            .then(|| String::from_utf8(asked.stdout).unwrap())
    });
    let Some(help) = help else {
        return Some("there is no such verb".to_owned());
    };
    let options = words.iter().filter(|it| it.starts_with("--"));
    let mut names = options.map(|it| it.split('=').next().unwrap());
    let is_new = |name: &&str| !help.split([' ', ',', '\n', '[', '=']).any(|it| it == *name);
    names.find(is_new).map(|name| format!("there is no {name}"))
}

#[test]
fn a_page_is_read_and_compared() {
    let page = "Write `/etc/steadyvm.toml`, for one\nVM.\n\n<!-- typed by a.rs::b -->\n```toml\na = 1\n```\n\
                Or:\n<!-- added to /etc/steadyvm.toml -->\n```toml\nb = 1\n```\n\
                ```console\n# one 1\n# two\nsaid 22 s\n…\nend\n```\n- a list\n  goes on\n\n      set --key x \\\n          y\n      z\n\n\
                <!-- not typed: it ends the machine -->\n```sh\nhalt\n```\n```json\n{}\n```\n";
    let printed = vec!["said 22 s".to_owned(), "…".to_owned(), "end".to_owned()];
    let command = |words: &str, printed| Command {
        words: words.to_owned(),
        printed,
    };
    let (path, read) = (FILE.to_owned(), guide::blocks(page));
    let contents: Vec<&Content> = read.iter().map(|it| &it.content).collect();
    let text = |text: &str| text.to_owned();
    let all = [
        Content::File {
            path: path.clone(),
            text: text("a = 1"),
        },
        Content::Addition {
            path,
            text: text("b = 1"),
        },
        Content::Commands(vec![
            command("one 1", Some(Vec::new())),
            command("two", Some(printed.clone())),
        ]),
        Content::Commands(vec![command("set --key x \\\ny", None), command("z", None)]),
        Content::Commands(vec![command("halt", None)]),
        Content::Unknown("a block of \"json\"".to_owned()),
    ];
    assert_eq!(contents, all.iter().collect::<Vec<_>>());
    assert!(
        read.iter()
            .all(|it| it.typed_by.as_deref() == Some("a.rs::b"))
    );
    let faults: Vec<bool> = read.iter().map(|it| it.fault().is_some()).collect();
    assert_eq!(faults, [false, false, false, false, false, true]);
    assert!(guide::blocks("\n    typed\n")[0].fault().is_some());
    let idle = guide::blocks("<!-- not typed: no -->\n\n    typed\n");
    assert!(idle[0].fault().is_some(), "{idle:?}");

    let agree = |said: &str| guide::agree(&printed, &said.lines().collect::<Vec<_>>());
    assert!(agree("said 7   s\nend"));
    assert!(agree("said 7 s\nmore\nend"));
    for wrong in ["said 7 s\nmore", "said x s\nend", "", "said 7 s\nend\nmore"] {
        assert!(!agree(wrong), "{wrong}");
    }
    let inline = guide::inline_commands("`sudo steadyvm\nundo` and `other`\n\n    `steadyvm x`\n");
    assert_eq!(inline, ["steadyvm undo"]);
    assert_eq!(unknown("apply --strict"), None);
    assert!(unknown("apply --wrong").is_some());
    assert!(unknown("applied").is_some());
}

/// A reader at a root's shell, who types what a page says.
struct Reader<'h> {
    host: &'h DebianHost,
    /// The host's file as the page has it.
    file: String,
    /// What did not go as the page says.
    differences: Vec<String>,
}

impl<'h> Reader<'h> {
    fn new(host: &'h DebianHost) -> Self {
        Self {
            host,
            file: String::new(),
            differences: Vec::new(),
        }
    }

    /// Types the blocks of a page that name the test. `by_hand` does a command that does not end by itself, or is not
    /// the host's, and says so.
    fn follow(&mut self, page: &str, test: &str, mut by_hand: impl FnMut(&str) -> bool) {
        for block in guide::typed_by(page, &format!("lab_guides.rs::{test}")) {
            match block.content {
                Content::File { path, text } => {
                    write(self.host, &path, &text);
                    self.file = text;
                }
                Content::Addition { path, text } => self.add(&path, &text),
                Content::Commands(commands) => {
                    for command in commands {
                        if !by_hand(&command.words) {
                            self.type_in(&command);
                        }
                    }
                }
                Content::Unknown(kind) => panic!("{page}:{}: {kind}", block.line),
            }
        }
    }

    /// As a shell that people type into: it goes on when a command fails.
    fn type_in(&mut self, command: &Command) {
        let Command { words, printed } = command;
        let (code, said) = try_inside(self.host, &format!("set +e; cd {}; {words}", debian::HOME));
        println!("# {words}\n{said}");
        let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
        let is_well = match printed {
            Some(printed) => guide::agree(printed, &lines),
            None => code == 0,
        };
        if !is_well {
            self.differences
                .push(format!("{words}: ended with {code}: {said}"));
        }
    }

    /// Lines that a reader may add to the file hold, and are taken back.
    fn add(&mut self, path: &str, text: &str) {
        assert_eq!(path, FILE);
        let shown = inside(self.host, "steadyvm host show --json || [ $? = 1 ]");
        let nothing_was = shown.contains("\"state\": \"none\"");
        write(self.host, path, &format!("{}\n{text}", self.file));
        for words in ["steadyvm apply", "steadyvm status"] {
            let (code, said) = try_inside(self.host, words);
            println!("# {words}    with:\n{text}\n{said}");
            if code != 0 {
                self.differences
                    .push(format!("{words} with {text}: ended with {code}: {said}"));
            }
        }
        write(self.host, path, &self.file);
        inside(
            self.host,
            if nothing_was {
                "steadyvm undo"
            } else {
                "steadyvm apply"
            },
        );
    }

    fn require_no_difference(&self) {
        let found = self.differences.join("\n");
        assert!(found.is_empty(), "the page says otherwise:\n{found}");
    }
}

/// A program that goes on until somebody presses Ctrl-C.
fn spawn(host: &DebianHost, words: &str) -> Process {
    let words = words.split('#').next().unwrap().trim();
    let words = words.strip_prefix("sudo ").unwrap_or(words);
    let words = format!("exec 2>&1; exec {words}");
    host.connection().spawn(&["sh", "-c", &words]).unwrap()
}

fn press_control_c(process: Process) {
    process.signal(libc::SIGINT).unwrap();
    let done = process.finish(PATIENCE).unwrap();
    assert!(
        [0, 130].contains(&done.status.shell_code()),
        "{}",
        done.text()
    );
}

/// Domain `web` runs.
fn start_web(host: &DebianHost) {
    define(host, "web", "10.77.1.3", STEADY_CLOCK);
    inside(host, "virsh --quiet start web");
    await_guest(host, "web");
}

fn end_web(host: &DebianHost) {
    inside(
        host,
        "virsh --quiet destroy web; virsh --quiet undefine web",
    );
}

/// Nothing is in force, and all is as it was before.
fn require_restored(host: &DebianHost) {
    inside(host, "steadyvm host snapshot --compare /run/before.json");
    inside(host, &format!("rm -f {FILE}"));
}

fn keep_state(host: &DebianHost) {
    inside(host, "steadyvm host snapshot > /run/before.json");
}

#[test]
#[ignore = "needs the lab: make guide-tests"]
fn a_newcomer_walks_through_the_guide() {
    let host = debian::host();
    start_web(&host);
    keep_state(&host);
    let mut reader = Reader::new(&host);
    reader.follow(HOST_PAGE, "a_newcomer_walks_through_the_guide", |_| false);
    reader.require_no_difference();
    // The page takes everything back at its end.
    inside(&host, "systemctl disable --now steadyvm.service");
    require_restored(&host);
    end_web(&host);
}

#[test]
#[ignore = "needs the lab: make guide-tests"]
fn the_readme_is_typed() {
    let host = debian::host();
    start_web(&host);
    keep_state(&host);
    let mut reader = Reader::new(&host);
    reader.follow("README.md", "the_readme_is_typed", |words| {
        let watches = words.contains("steadyvm watch");
        if watches {
            let watching = spawn(&host, words);
            inside(
                &host,
                "until steadyvm status --json | grep -q '\"watch\": *true'; do :; done",
            );
            press_control_c(watching);
            inside(&host, "steadyvm status");
        }
        watches
    });
    reader.require_no_difference();
    require_restored(&host);
    end_web(&host);
}

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
ip netns exec client /usr/sbin/sshd -o UsePAM=no
until ssh -o StrictHostKeyChecking=accept-new client true && ssh -o StrictHostKeyChecking=accept-new client.example true; do :; done
";

#[test]
#[ignore = "needs the lab: make guide-tests"]
fn a_host_is_measured_as_the_guide_says() {
    const PAGE: &str = "docs/guide/measure.md";
    const TEST: &str = "a_host_is_measured_as_the_guide_says";
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
    inside(&host, "steadyvm undo");
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
        let mut client_of = Program::new(env!("CARGO_BIN_EXE_steadyvm"));
        Ok(client_of.args(client).output().unwrap())
    });
    let sent = sent.unwrap();
    assert!(sent.status.success(), "{sent:?}");
    let said = recording.finish(PATIENCE).unwrap();
    println!("# {words}\n{}", said.text());
    assert_eq!(said.status.shell_code(), 0, "{}", said.text());
    assert!(said.text().contains("wait"), "{}", said.text());
}

/// Debian's collector, as its package starts it, takes the file that the guide writes.
fn require_collected(host: &DebianHost) {
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

/// tuned looks for profiles elsewhere from 2.23 on, and Debian 13 has 2.25.
#[test]
#[ignore = "needs the lab: make guide-tests"]
fn tuned_takes_the_packages_profile() {
    let host = debian::host();
    inside(&host, "systemctl start dbus.service tuned.service");
    let mut reader = Reader::new(&host);
    reader.follow(HOST_PAGE, "tuned_takes_the_packages_profile", |_| false);
    let active = inside(&host, "tuned-adm active");
    inside(&host, "tuned-adm off; systemctl stop tuned.service");
    reader.require_no_difference();
    assert!(active.contains("steadyvm-host"), "{active}");
}

/// Where hooks of administrators lie.
const OWN_HOOK: &str = "/etc/libvirt/hooks/qemu.d/50-own";

/// Debian confines libvirtd, and what a hook is a link to must be what libvirtd may execute: a program in a place of its
/// own is refused, and with it every domain, those that run when libvirtd starts again among them. The package's hook is none such.
#[test]
#[ignore = "needs the lab: make guide-tests"]
fn under_apparmor_the_packages_hook_runs_and_one_linked_elsewhere_stops_every_domain() {
    let host = debian::host();
    let libvirtd = || -> u32 {
        inside(&host, "cat /run/libvirtd.pid")
            .trim()
            .parse()
            .unwrap()
    };
    assert_eq!(debian::confinement(&host, libvirtd()), "libvirtd (enforce)");
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
        inside(
            &host,
            &format!(
                "mkdir -p {place}; cp /bin/true {place}/a-hook; ln -sf {place}/a-hook {OWN_HOOK}; dmesg -C; \
                 systemctl restart libvirtd.service"
            ),
        );
        let (code, said) = try_inside(&host, "virsh --quiet start web");
        println!("{place}: {said}");
        let log = inside(&host, "dmesg");
        let denied = |line: &str| {
            line.contains("apparmor=\"DENIED\"")
                && line.contains(&format!("name=\"{place}/a-hook\""))
        };
        assert!(log.lines().any(denied), "{log}");
        // The first restart has ended the domain that ran.
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("Hook script execution failed"), "{said}");
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
