//! `steadyvm exporter`, asked by a collector, by clients that are slow or wrong, and read by Prometheus's own parser.

#![allow(clippy::unwrap_used)] // a test's helper fails by panicking, as the test itself does

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One that runs; killed at the end of a test that fails.
struct Exporter {
    child: Child,
    /// Where it says that it is.
    address: String,
    _place: tempfile::TempDir,
}

impl Exporter {
    fn start(listen: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadyvm"));
        command.args(["exporter", "--listen", listen, "--state-dir"]);
        command.arg(place.path()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = said.find_map(|line| {
            Some(
                line.ok()?
                    .strip_prefix("steadyvm: metrics are at ")?
                    .to_owned(),
            )
        });
        // It must not wait for somebody who reads what else it says.
        std::thread::spawn(move || said.for_each(drop));
        let address = address.expect("it says where it is");
        Self {
            child,
            address,
            _place: place,
        }
    }

    fn tcp(&self) -> TcpStream {
        let address = self.address.strip_prefix("http://").unwrap();
        TcpStream::connect(address.strip_suffix("/metrics").unwrap()).unwrap()
    }

    fn end(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // One that has ended needs no killing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Head and body of the answer to a request.
fn ask(mut client: impl Read + Write, request: &str) -> (String, String) {
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn promtool(words: &[&str], input: &str) -> Output {
    let mut promtool = Command::new("promtool");
    promtool.args(words).stdin(Stdio::piped());
    promtool.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = promtool.spawn().expect("promtool: tools/set-up for-tests");
    let mut stdin = promtool.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    promtool.wait_with_output().unwrap()
}

fn assert_well(done: &Output) {
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
}

#[test]
fn prometheus_own_parser_takes_what_is_told_without_a_complaint() {
    let exporter = Exporter::start("127.0.0.1:0");
    let (head, body) = ask(
        exporter.tcp(),
        "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n",
    );
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(
        head.contains("Content-Type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert!(body.contains("\nsteadyvm_in_force 0\n"), "{body}");
    assert_well(&promtool(&["check", "metrics"], &body));
    let accept =
        "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n";
    let (head, body) = ask(exporter.tcp(), accept);
    assert!(head.contains("application/openmetrics-text"), "{head}");
    assert!(body.ends_with("# EOF\n"));
    exporter.end();
}

#[test]
fn a_unix_socket_serves_the_same_and_goes_with_the_exporter() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("socket");
    let exporter = Exporter::start(&format!("unix:{}", path.display()));
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    let (head, body) = ask(
        UnixStream::connect(&path).unwrap(),
        "GET /metrics HTTP/1.0\r\n\r\n",
    );
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(body.contains("steadyvm_settings_drifted 0\n"));
    exporter.end();
    assert!(!path.exists());
}

#[test]
fn clients_that_say_nothing_delay_others_for_two_seconds_at_most() {
    let exporter = Exporter::start("[::1]:0");
    let silent: Vec<TcpStream> = (0..4).map(|_| exporter.tcp()).collect();
    let begin = Instant::now();
    let (head, _) = ask(exporter.tcp(), "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    // Far above the limit: a machine that is busy is no fault.
    assert!(begin.elapsed() < Duration::from_secs(20));
    for mut client in silent {
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    let (head, _) = ask(exporter.tcp(), "DELETE /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    exporter.end();
}

#[test]
fn an_address_that_other_hosts_reach_is_refused() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9979"] {
        let mut exporter = Command::new(env!("CARGO_BIN_EXE_steadyvm"));
        let done = exporter
            .args(["exporter", "--listen", address])
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(2));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(said.contains("no address of loopback"), "{said}");
    }
}

/// Each alert fires in them.
#[test]
fn prometheus_takes_the_alert_rules_and_their_tests() {
    let rules = packaging("prometheus/steadyvm.rules.yml");
    assert_well(&promtool(&["check", "rules", "--lint=all", &rules], ""));
    let tests = packaging("prometheus/steadyvm.rules.test.yml");
    assert_well(&promtool(&["test", "rules", &tests], ""));
    let fired = fs::read_to_string(tests).unwrap();
    let rules = fs::read_to_string(rules).unwrap();
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    for alert in alerts {
        assert!(fired.contains(alert), "no test fires {alert}");
    }
}

/// As rules, which are the expressions that promtool reads.
#[test]
fn prometheus_takes_every_expression_of_the_board() {
    let board = fs::read_to_string(packaging("grafana/steadyvm.json")).unwrap();
    let board: serde_json::Value = serde_json::from_str(&board).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let rules: Vec<_> = targets
        .flatten()
        .enumerate()
        .map(|(number, target)| {
            serde_json::json!({"record": format!("board:{number}"), "expr": target["expr"]})
        })
        .collect();
    assert!(rules.len() > 10);
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("rules.yml");
    // JSON is YAML.
    let groups = serde_json::json!({"groups": [{"name": "board", "rules": rules}]});
    fs::write(&file, groups.to_string()).unwrap();
    assert_well(&promtool(&["check", "rules", file.to_str().unwrap()], ""));
}

/// `.*` takes series without a label, too: those of cards.
#[test]
fn all_vms_of_the_board_are_vms() {
    let board = fs::read_to_string(packaging("grafana/steadyvm.json")).unwrap();
    let board: serde_json::Value = serde_json::from_str(&board).unwrap();
    let variables = board["templating"]["list"].as_array().unwrap();
    let vm = variables.iter().find(|it| it["name"] == "vm").unwrap();
    assert_eq!(vm["allValue"], ".+");
}

fn packaging(file: &str) -> String {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    packaging.join(file).to_str().unwrap().to_owned()
}
