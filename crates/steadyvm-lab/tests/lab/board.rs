//! The Grafana board over a real Prometheus, which asks the exporter of an emulated host: each panel has data, and is drawn on a
//! page. Grafana itself is not drawn, for its licence.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::profile::{inside, write};
use serde_json::Value;
use steadyvm_lab::agent::Connection;
use steadyvm_lab::host::{BULK, EmulatedHost, RT};
use steadyvm_lab::laboratory::{HostKernel, guest};
use steadyvm_lab::progress::Silent;
use steadyvm_report::lines::{Axis, Lines, Over, Point, Series};
use steadyvm_report::{Grid, ReportMeta, headers, page, tick_words};

/// `rt` has a budget. `loud` has a rank and none, so that it can keep `rt` from CPUs.
const FILE: &str = "
[host]
pcpus = 2
scheduler = \"gedf\"
enforce = \"ext\"

[class.loud]
vhost = 40
vcpu = 20

[[nic]]
name = \"rt\"
class = \"rt\"

[[vm]]
name = \"rt\"
class = \"rt\"
interface = \"prm\"
period = \"10ms\"
budget = \"4ms\"

[[vm]]
name = \"bulk\"
class = \"loud\"
";

/// No guest of this test reports deadlines.
const WITHOUT_DATA: &str = "Deadlines that guests missed, in 10 minutes";

const SCRAPE_INTERVAL_S: usize = 5;
/// The guest computes during the first half of them.
const SCRAPES: usize = 48;

/// So long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// One that runs; killed at the test's end.
struct Prometheus {
    child: Child,
    address: String,
}

impl Prometheus {
    fn start(place: &Path, asks: &str) -> Self {
        let configuration = place.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: {SCRAPE_INTERVAL_S}s}}
scrape_configs:
- {{job_name: steadyvm, static_configs: [{{targets: [\"{asks}\"]}}]}}
"
        );
        std::fs::write(&configuration, text).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", configuration.display()));
        command.arg(format!(
            "--storage.tsdb.path={}",
            place.join("data").display()
        ));
        command.arg("--web.listen-address=127.0.0.1:0");
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("prometheus: tools/set-up for-tests");
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut own = Self {
            child,
            address: String::new(),
        };
        loop {
            let line = said.next().expect("it becomes ready").unwrap();
            if line.contains("msg=\"Listening on\"") {
                let told = line.split(' ').find_map(|it| it.strip_prefix("address="));
                told.expect("it says where it listens")
                    .clone_into(&mut own.address);
            } else if line.contains("Server is ready") {
                break;
            }
        }
        // It must not wait for somebody who reads its log.
        thread::spawn(move || said.for_each(drop));
        own
    }

    /// The series of an expression over the last seconds, a value per scrape.
    fn series(&self, expression: &str, last_s: usize) -> Vec<Value> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let end = now.as_secs();
        let start = end - last_s as u64;
        let mut query = String::new();
        for byte in expression.bytes() {
            write!(query, "%{byte:02x}").unwrap();
        }
        let path = format!(
            "/api/v1/query_range?query={query}&start={start}&end={end}&step={SCRAPE_INTERVAL_S}"
        );
        let mut client = TcpStream::connect(&self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(client, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap();
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // One that has ended needs no killing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Hands each request to the exporter in the host, and tells of each answer. The lab's hosts have no network to this machine.
fn hand_over(listener: &TcpListener, host: &Connection, answered: &Sender<()>) {
    const ASK: &str =
        "exec 3<> /dev/tcp/127.0.0.1/9979; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
    for client in listener.incoming() {
        let mut client = client.unwrap();
        let request = BufReader::new(client.try_clone().unwrap()).lines();
        let lines = request
            .map_while(Result::ok)
            .take_while(|it| !it.is_empty());
        if lines.count() == 0 {
            return;
        }
        let answer = host.text(&["bash", "-euc", ASK]).unwrap();
        // A collector that has ended, or waits no longer, takes no answer.
        if client.write_all(answer.as_bytes()).is_ok() && answered.send(()).is_err() {
            return;
        }
    }
}

/// Ends [`hand_over`] by a client that asks nothing, also where the test fails: its thread is waited for.
struct Ends<'a>(&'a str);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        // Nobody listens where it has ended by itself.
        let _ = TcpStream::connect(self.0);
    }
}

fn wait_for(answered: &Receiver<()>, scrapes: usize) {
    for _ in 0..scrapes {
        answered
            .recv_timeout(PATIENCE)
            .expect("a scrape is answered");
    }
}

/// Seconds after 1970, and values.
type Values = Vec<(f64, f64)>;

/// A panel's series by name, in the unit that it is shown in.
fn shown(panel: &Value, found: &[Value]) -> (&'static str, Vec<(String, Values)>) {
    let (unit, factor) = match panel["fieldConfig"]["defaults"]["unit"].as_str() {
        Some("s") => ("µs", 1e6),
        Some("percentunit") => ("%", 100.0),
        Some("ops") => ("per second", 1.0),
        _ => ("", 1.0),
    };
    let series = found.iter().map(|it| {
        let labels = it["metric"].as_object().unwrap().iter();
        let labels =
            labels.filter(|(name, _)| !["instance", "job", "__name__"].contains(&&***name));
        let name: Vec<&str> = labels.filter_map(|(_, value)| value.as_str()).collect();
        let values = it["values"].as_array().unwrap().iter();
        let values = values.filter_map(|pair| {
            let value: f64 = pair[1].as_str()?.parse().ok()?;
            Some((pair[0].as_f64()?, value * factor))
        });
        let name = if name.is_empty() {
            "all".to_owned()
        } else {
            name.join(" ")
        };
        (name, values.collect())
    });
    (unit, series.collect())
}

fn curves(title: &str, unit: &str, series: &[(String, Values)]) -> String {
    let times = series.iter().flat_map(|it| &it.1).map(|it| it.0);
    let first = times.fold(f64::INFINITY, f64::min);
    let lines = series.iter().map(|(name, values)| Series {
        name,
        points: values
            .iter()
            .map(|&(at, value)| Point {
                at: at - first,
                value,
                interval: None,
            })
            .collect(),
    });
    Lines {
        title: if unit.is_empty() {
            title.to_owned()
        } else {
            format!("{title}, {unit}")
        },
        over: Over::Numbers("seconds"),
        axis: Axis::Linear,
        words: tick_words,
        mark: None,
        series: lines.collect(),
    }
    .card()
}

/// What stands for all values of a variable of the board.
fn all_of<'b>(board: &'b Value, variable: &str) -> &'b str {
    let variables = board["templating"]["list"].as_array().unwrap();
    let found = variables.iter().find(|it| it["name"] == variable).unwrap();
    found["allValue"].as_str().unwrap()
}

/// A table of the newest values.
fn newest(title: &str, series: &[(String, Values)]) -> String {
    let row = |(name, values): &(String, Values)| {
        let value = values.last().map_or(0.0, |it| it.1);
        vec![name.clone(), value.to_string()]
    };
    Grid {
        title: title.to_owned(),
        words: 1,
        headers: headers(["", "now"]),
        rows: series.iter().map(row).collect(),
    }
    .html()
}

/// A row of the board.
#[derive(Default)]
struct Row {
    title: String,
    curves: String,
    /// Panels of one number each.
    numbers: Vec<(String, Values)>,
    tables: String,
}

impl Row {
    fn html(&self) -> String {
        let mut cards = self.curves.clone();
        if !self.numbers.is_empty() {
            let numbers = newest("Now", &self.numbers);
            cards = format!("<figure class=\"card\">{numbers}</figure>\n{cards}");
        }
        let cards = if cards.is_empty() {
            cards
        } else {
            page::cards(&self.title, &cards)
        };
        cards + &self.tables
    }
}

/// The board as a page; panels without data are named by the second.
fn drawn(board: &Value, prometheus: &Prometheus) -> (String, Vec<String>) {
    let mut text = page::begin(&ReportMeta {
        title: board["title"].as_str().unwrap().to_owned(),
        ..ReportMeta::default()
    });
    let (mut row, mut without) = (Row::default(), Vec::new());
    let of_all = |expression: &str| {
        let of_hosts = expression.replace("$instance", all_of(board, "instance"));
        of_hosts.replace("$vm", all_of(board, "vm"))
    };
    for panel in board["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap().to_owned();
        if panel["type"] == "row" {
            text += &row.html();
            row = Row {
                title,
                ..Row::default()
            };
            continue;
        }
        let mut found = Vec::new();
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let series = prometheus.series(&of_all(expression), SCRAPES * SCRAPE_INTERVAL_S);
            // "All" VMs are VMs: no card's threads.
            let is_of_vms = expression.contains("$vm");
            let is_of_vm = |it: &Value| it["metric"]["vm"].is_string();
            assert!(
                !is_of_vms || series.iter().all(is_of_vm),
                "{title}: {series:?}"
            );
            found.extend(series);
        }
        let (unit, series) = shown(panel, &found);
        match panel["type"].as_str().unwrap() {
            "timeseries" => row.curves += &curves(&title, unit, &series),
            "stat" => {
                let values = series
                    .into_iter()
                    .map(|(_, values)| (title.clone(), values));
                row.numbers.extend(values);
            }
            "table" => row.tables += &newest(&title, &series),
            other => panic!("{title}: this test draws no {other}"),
        }
        if found.is_empty() {
            without.push(title);
        }
    }
    (text + &row.html() + page::END, without)
}

#[test]
#[ignore = "needs the lab: make board"]
fn each_panel_of_the_board_has_data_of_a_host() {
    let logs = tempfile::tempdir().unwrap();
    let laboratory = crate::support::profile::laboratory(logs.path(), HostKernel::V7_3Rt);
    let host = EmulatedHost::boot(&laboratory.host("board", HostKernel::V7_3Rt).unwrap()).unwrap();
    write(&host, "/run/steadyvm.toml", FILE);
    let start = |name, number, network| {
        let machine = guest(name, number, 1);
        host.start_guest(&machine, &[network], &Silent).unwrap()
    };
    let rt = start("rt", 1, RT);
    let _bulk = start("bulk", 2, BULK);
    inside(&host, "steadyvm apply --strict /run/steadyvm.toml");
    let spawn = |words: &str| host.connection().spawn(&["sh", "-c", words]).unwrap();
    let _watch = spawn("exec steadyvm watch /run/steadyvm.toml");
    let mut exporter = spawn("ip link set lo up; exec steadyvm exporter --interval 0 2>&1");
    exporter
        .wait_for_line("metrics are at", Duration::from_secs(300))
        .unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let asks = listener.local_addr().unwrap().to_string();
    let place = tempfile::tempdir().unwrap();
    let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana/steadyvm.json");
    let board: Value = serde_json::from_str(&std::fs::read_to_string(board).unwrap()).unwrap();
    let (sender, answered) = channel();
    thread::scope(|scope| {
        scope.spawn(|| hand_over(&listener, host.connection(), &sender));
        let _ends = Ends(&asks);
        let prometheus = Prometheus::start(place.path(), &asks);
        let computing = rt
            .connection()
            .spawn(&["sh", "-c", "while :; do :; done"])
            .unwrap();
        wait_for(&answered, SCRAPES / 2);
        drop(computing);
        wait_for(&answered, SCRAPES / 2);
        let (text, without) = drawn(&board, &prometheus);
        let to = std::env::var_os("STEADYVM_BOARD").map(PathBuf::from);
        let to = to.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("board.html"));
        std::fs::write(&to, text).unwrap();
        println!("drawn: {}", to.display());
        assert_eq!(without, [WITHOUT_DATA]);
    });
}
