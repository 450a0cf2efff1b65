//! The report as a browser shows it: laid out in headless Chromium and measured from inside.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod common;

use serde::Deserialize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};
use steadyvm_experiment::compare::report::render;
use steadyvm_experiment::compare::{RunData, assemble};
use steadyvm_experiment::engine::results::{from_json, to_json};
use steadyvm_experiment::engine::rounds::RowData;
use steadyvm_experiment::nisp::{Times, udp};
use steadyvm_load::job::{Done, Ran};
use steadyvm_report::ReportMeta;
use steadyvm_stats::bootstrap::BootstrapOptions;

/// What the probe in the page found.
#[derive(Debug, Deserialize)]
struct Layout {
    inner_width: u32,
    scroll_width: u32,
    /// Elements that stick out of the page to the right, outside of scrolling containers.
    sticking_out: Vec<String>,
    svgs: usize,
    empty_svgs: usize,
    /// Text in SVGs that is cut by the drawing's edge.
    cut_texts: Vec<String>,
    /// Smallest SVG text, in CSS pixels as shown.
    smallest_text_px: f64,
    fetched: usize,
    errors: Vec<String>,
    plain_text: String,
}

#[test]
fn a_phone_and_a_desktop_show_everything() {
    let results = assemble(&common::comparison(3, 700), BootstrapOptions::default());
    let page = render(&results, &meta());
    for width in [360, 1200] {
        let layout = laid_out(&page, width);
        assert_sound(&layout, width);
        // Two plots a phase, two bar charts, three pairs of methods; a legend line a method and plot.
        assert_eq!(layout.svgs, 6 + 2 + 3 + 18);
        assert!(
            layout.smallest_text_px >= 9.0,
            "{} px at {width}",
            layout.smallest_text_px
        );
        for expected in [
            "vanilla",
            "dedicated / preempt-rt",
            "n = 2100",
            "99.9 %",
            "max ",
        ] {
            assert!(
                layout.plain_text.contains(expected),
                "{expected} is not shown"
            );
        }
    }
}

#[test]
fn the_report_of_nisp_is_readable_on_a_phone_and_a_desktop() {
    let results = udp::assemble(&nisp(), BootstrapOptions::default()).unwrap();
    let page = udp::page(&results).html(&meta());
    for width in [360, 1200] {
        let layout = laid_out(&page, width);
        assert_sound(&layout, width);
        // Six figures with three lines each.
        assert_eq!(layout.svgs, 6 + 18);
        assert!(layout.smallest_text_px >= 9.0, "{layout:?}");
        for expected in ["target 1.5", "15000", "20 ms", "rt-poll-list", "> 16 ms"] {
            assert!(
                layout.plain_text.contains(expected),
                "{expected} is not shown"
            );
        }
    }
}

/// Three rounds of three methods at eight rates up to 16,625 packets/s: jobs of 12 ms, which packets make longer,
/// those of the first method most.
fn nisp() -> udp::RunData {
    let asked: Vec<f64> = (0..=8)
        .map(|step| 16_625.0 * f64::from(step) / 8.0)
        .collect();
    let rate = |slower_us: f64, packets_per_s: f64, round: u64| {
        let done = |job: u64| {
            let noise_us = (job * (7 + round) % 11) as f64;
            let response_us = 12_000.0 + slower_us * (1.0 + noise_us) + 30.0 * noise_us;
            Done {
                released_ns: job * 30_000_000,
                finished_ns: job * 30_000_000 + (1000.0 * response_us) as u64,
            }
        };
        udp::RateData {
            ran: Ran {
                done: (0..60).map(done).collect(),
                waited_ns: 12_000_000,
            },
            sent_packets_per_s: packets_per_s,
            received_packets_per_s: packets_per_s / (1.0 + slower_us / 1000.0),
            cpu_busy_fraction: 0.5,
        }
    };
    let method = |(name, slows): (&str, f64)| RowData {
        name: name.to_owned(),
        rounds: (0..3)
            .map(|round| {
                let rates = asked.iter();
                let rates = rates.map(|&asked| rate(slows * asked / 20.0, asked, round));
                let mut alone = rate(0.0, 0.0, round);
                alone.received_packets_per_s = (15_000.0 + 100.0 * round as f64) / slows;
                rates.chain([alone]).collect()
            })
            .collect(),
    };
    let methods = [
        ("vanilla", 1.0),
        ("preempt-rt", 0.1),
        ("rt-poll-list", 0.05),
    ];
    udp::RunData {
        times: Times {
            period_us: 30_000,
            execution_us: 12_000,
            deadlines_us: [16_000, 30_000],
        },
        peaks_packets_per_s: methods.map(|(_, slows)| 16_625.0 / slows).into(),
        methods: methods.map(method).into(),
        asked_packets_per_s: asked.clone(),
        alone_asked_packets_per_s: 32_000.0,
    }
}

#[test]
fn hostile_names_and_missing_figures_do_no_harm() {
    let hostile = "<script>alert(1)</script><img src=x onerror=alert(2)>&amp;\"'\u{1b}[2J";
    let long = "a-very-long-method-name-without-any-space-".repeat(4);
    let mut data = common::comparison(1, 30);
    data.methods[0].name = hostile.to_owned();
    data.methods[1].name = long.clone();
    for round in &mut data.methods[2].rounds {
        round.full.netrt.samples.clear();
        round.full.netstream = None;
        round.full.host_cpu_busy_fraction = f64::NAN;
    }
    let results = assemble(&data, BootstrapOptions::default());
    let meta = ReportMeta {
        title: hostile.to_owned(),
        facts: vec![(hostile.to_owned(), long)],
        notes: vec![hostile.to_owned()],
    };
    let layout = laid_out(&render(&results, &meta), 360);
    assert!(
        layout.fetched == 0 && layout.errors.is_empty(),
        "{layout:?}"
    );
    assert!(layout.scroll_width <= layout.inner_width, "{layout:?}");
    assert_eq!(layout.empty_svgs, 0);
    assert!(
        layout.plain_text.contains("<script>alert(1)</script>"),
        "not shown as text"
    );

    let nothing = assemble(&RunData::default(), BootstrapOptions::default());
    assert_sound(
        &laid_out(&render(&nothing, &ReportMeta::default()), 360),
        360,
    );
}

#[test]
fn a_report_made_from_results_json_is_the_same() {
    let results = assemble(&common::comparison(2, 200), BootstrapOptions::default());
    let read_back = from_json(&to_json(&results).unwrap()).unwrap();
    assert_eq!(render(&read_back, &meta()), render(&results, &meta()));
}

fn assert_sound(layout: &Layout, width: u32) {
    assert_eq!(
        layout.inner_width, width,
        "the page is not shown at the width asked for"
    );
    assert!(
        layout.scroll_width <= layout.inner_width,
        "overflows: {layout:?}"
    );
    assert!(
        layout.sticking_out.is_empty(),
        "sticks out: {:?}",
        layout.sticking_out
    );
    assert_eq!(layout.empty_svgs, 0, "SVGs without size");
    assert!(layout.cut_texts.is_empty(), "cut: {:?}", layout.cut_texts);
    assert_eq!(layout.fetched, 0, "the report fetches something");
    assert!(layout.errors.is_empty(), "{:?}", layout.errors);
}

fn meta() -> ReportMeta {
    ReportMeta {
        title: "steadyvm-lab compare: vanilla, preempt-rt, dedicated".into(),
        facts: vec![
            ("Command".into(), "steadyvm-lab compare --methods vanilla,preempt-rt,dedicated --samples 2000 --rounds 3 --out results".into()),
            ("Git revision".into(), "0123456789abcdef0123456789abcdef01234567".into()),
            ("Kernel of vanilla".into(), "6.12.9-amd64".into()),
            ("Kernel of preempt-rt, dedicated".into(), "6.12.9-steadyvm-rt".into()),
            ("Host".into(), "emulated by QEMU 9.2, TCG, 2 CPUs".into()),
        ],
        notes: vec!["The host was emulated: compare methods by ratio, do not quote the microseconds as hardware’s. (Synthetic data of a test.)".into()],
    }
}

/// Shows `page` in a frame `width` pixels wide (a browser window has a smallest width, a frame has
/// none) and measures it from outside the frame, so that the page is exactly what users get.
fn laid_out(page: &str, width: u32) -> Layout {
    let directory = tempfile::tempdir().unwrap();
    let outer = directory.path().join("outer.html");
    fs::write(&outer, framed(page, width)).unwrap();
    keep_for_looking(page, &outer, width);
    let mut command = chromium(directory.path());
    command
        .arg("--dump-dom")
        .arg(format!("--window-size={},900", width + 40));
    let output = finished(command.arg(format!("file://{}", outer.display())));
    let document = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let messages: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(messages.is_empty(), "console messages: {messages:?}");
    let found = document
        .split_once("<pre id=\"found\">")
        .and_then(|(_, rest)| rest.split_once("</pre>"))
        .unwrap_or_else(|| {
            panic!(
                "no measurement in {} bytes of DOM; log:\n{log}",
                document.len()
            )
        });
    let json = found
        .0
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn framed(page: &str, width: u32) -> String {
    let source = page.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<!doctype html><meta charset=\"utf-8\"><body style=\"margin:0\">\
         <iframe id=\"frame\" style=\"border:0;width:{width}px;height:800px\" srcdoc=\"{source}\">\
         </iframe><script>{PROBE}</script>"
    )
}

const PROBE: &str = r#"
const frame = document.getElementById("frame");
const errors = [];
window.onerror = (message) => errors.push(String(message));
frame.addEventListener("load", () => {
  const view = frame.contentWindow, page = frame.contentDocument, root = page.documentElement;
  view.onerror = (message) => errors.push(String(message));
  const svgs = [...page.querySelectorAll("svg")];
  const texts = [...page.querySelectorAll("svg text")];
  const scrolled = (element) => element.closest(".scroll") && !element.matches(".scroll");
  const name = (element) => element.tagName + " " + element.textContent.slice(0, 40);
  const found = {
    inner_width: view.innerWidth,
    scroll_width: root.scrollWidth,
    sticking_out: [...page.body.querySelectorAll("*")].filter((element) => !scrolled(element)
      && element.getBoundingClientRect().right > view.innerWidth + 0.5).map(name),
    svgs: svgs.length,
    empty_svgs: svgs.filter((svg) => {
      const box = svg.getBoundingClientRect();
      return box.width < 1 || box.height < 1;
    }).length,
    cut_texts: texts.filter((text) => {
      const box = text.getBoundingClientRect(), svg = text.ownerSVGElement.getBoundingClientRect();
      return box.left < svg.left - 1 || box.right > svg.right + 1 || box.bottom > svg.bottom + 1;
    }).map(name),
    smallest_text_px: Math.min(99, ...texts.map((text) => {
      const svg = text.ownerSVGElement;
      return parseFloat(view.getComputedStyle(text).fontSize)
        * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
    })),
    fetched: view.performance.getEntriesByType("resource").length
      + page.querySelectorAll("script, iframe, object, embed, img, video, audio").length,
    errors,
    plain_text: page.body.innerText + texts.map((text) => text.textContent).join("\n"),
  };
  const pre = document.createElement("pre");
  pre.id = "found";
  pre.textContent = JSON.stringify(found);
  document.body.append(pre);
});
"#;

/// With `STEADYVM_KEEP_REPORTS=DIR`, keeps the page and a screenshot in DIR for people to look at.
fn keep_for_looking(page: &str, outer: &Path, width: u32) {
    let Some(directory) = std::env::var_os("STEADYVM_KEEP_REPORTS") else {
        return;
    };
    let directory = Path::new(&directory);
    fs::create_dir_all(directory).unwrap();
    let length = page.len();
    fs::write(directory.join(format!("report-{length}.html")), page).unwrap();
    let profile = tempfile::tempdir().unwrap();
    let image = directory.join(format!("report-{length}-{width}.png"));
    let tall = framed(page, width).replace("height:800px", "height:7000px");
    let tall_page = outer.with_file_name("tall.html");
    fs::write(&tall_page, tall).unwrap();
    finished(
        chromium(profile.path())
            .arg(format!("--screenshot={}", image.display()))
            .arg(format!("--window-size={},7000", width.max(500)))
            .arg(format!("file://{}", tall_page.display())),
    );
}

fn chromium(profile: &Path) -> Command {
    let mut command = Command::new("chromium");
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        "--enable-logging=stderr",
    ]);
    command.arg(format!(
        "--user-data-dir={}",
        profile.join("profile").display()
    ));
    command.stdin(Stdio::null());
    command
}

fn finished(command: &mut Command) -> std::process::Output {
    match command.output() {
        Ok(output) if output.status.success() => output,
        Ok(output) => panic!(
            "chromium ended with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            panic!("chromium is not installed: apt-get install chromium (make test installs it)")
        }
        Err(error) => panic!("chromium cannot be started: {error}"),
    }
}
