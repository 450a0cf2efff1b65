//! A reader who types what a page says, and what such tests do again and again.

use steadyvm_lab::agent::Process;

use crate::support::debian::{self, DebianHost};
use crate::support::guide::{self, Command, Content};
use crate::support::libvirt::{
    PATIENCE, STEADY_CLOCK, Thread, await_guest, define, inside, try_inside, write,
};

/// The host's file.
pub const FILE: &str = "/etc/steadyvm.toml";
/// What the README and the guide write into it first.
pub const RANKS: &str =
    "[[nic]]\nname = \"eth1\"\nclass = \"rt\"\n[[vm]]\nname = \"web\"\nclass = \"rt\"\n";

/// A reader at a root's shell, who types what a page says.
pub struct Reader<'h> {
    host: &'h DebianHost,
    /// The host's file as the page has it.
    file: String,
    /// What did not go as the page says.
    differences: Vec<String>,
}

impl<'h> Reader<'h> {
    pub fn new(host: &'h DebianHost) -> Self {
        Self {
            host,
            file: String::new(),
            differences: Vec::new(),
        }
    }

    /// Types the blocks of a page that name the test. `by_hand` does a command that does not end by itself, or is not
    /// the host's, and says so.
    pub fn follow(&mut self, page: &str, test: &str, mut by_hand: impl FnMut(&str) -> bool) {
        for block in guide::typed_by(page, &format!("lab/guides/{test}")) {
            match block.content {
                Content::File { path, text } => {
                    write(self.host, &path, &text);
                    if path == FILE {
                        self.file = text;
                    }
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
        let (code, said) = type_words(self.host, words);
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
        let shown = inside(self.host, "steadyvm status --json || [ $? = 1 ]");
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

    pub fn require_no_difference(&self) {
        let found = self.differences.join("\n");
        assert!(found.is_empty(), "the page says otherwise:\n{found}");
    }
}

/// What a root's shell, which is bash, says to these words, and the code that they end with.
fn type_words(host: &DebianHost, words: &str) -> (i32, String) {
    let words = format!("exec 2>&1; cd {}; {words}", debian::HOME);
    let shell = host.connection().spawn(&["bash", "-c", &words]).unwrap();
    shell.end_of_input().unwrap();
    let done = shell.finish(PATIENCE).unwrap();
    (done.status.shell_code(), done.text())
}

/// A program that goes on until somebody presses Ctrl-C.
pub fn spawn(host: &DebianHost, words: &str) -> Process {
    let words = words.split('#').next().unwrap().trim();
    let words = words.strip_prefix("sudo ").unwrap_or(words);
    let words = format!("exec 2>&1; exec {words}");
    host.connection().spawn(&["sh", "-c", &words]).unwrap()
}

pub fn press_control_c(process: Process) {
    process.signal(libc::SIGINT).unwrap();
    let done = process.finish(PATIENCE).unwrap();
    assert!(
        [0, 130].contains(&done.status.shell_code()),
        "{}",
        done.text()
    );
}

/// Domain `web` runs.
pub fn start_web(host: &DebianHost) {
    define(host, "web", "10.77.1.3", STEADY_CLOCK);
    inside(host, "virsh --quiet start web");
    await_guest(host, "web");
}

pub fn end_web(host: &DebianHost) {
    inside(
        host,
        "virsh --quiet destroy web; virsh --quiet undefine web",
    );
}

/// Nothing is in force, and all is as it was before.
pub fn require_restored(host: &DebianHost) {
    inside(
        host,
        "steadyvm status --snapshot --compare /run/before.json",
    );
    inside(host, &format!("rm -f {FILE}"));
}

/// The `undo` of an earlier page does not hold any more, as after a boot.
pub fn keep_state(host: &DebianHost) {
    inside(
        host,
        "rm -f /run/steadyvm/host/undone; steadyvm status --snapshot > /run/before.json",
    );
}

/// A VCPU of the VMs of these guides: two VCPUs share 8 ms of every 10 ms.
fn has_its_budget(vcpu: &Thread) -> bool {
    vcpu.policy.contains("SCHED_DEADLINE") && vcpu.policy.contains(" 4000000/10000000/10000000")
}

pub fn require_budgets(threads: &[Thread]) {
    let mut vcpus = threads.iter().filter(|it| it.is_vcpu());
    assert_eq!(vcpus.clone().count(), 2, "{threads:#?}");
    assert!(vcpus.all(has_its_budget), "{threads:#?}");
}
