//! A recording as a chart: a row per CPU, a box per stretch, coloured by VCPU; late jobs are marked below.

use std::fmt::Write;

use crate::{Recorder, perfetto::Names, system::System};

const WIDTH: f64 = 1_200.0;
const LEFT: f64 = 70.0;
const ROW: f64 = 34.0;

/// The first `length_ns` of the recording as SVG.
pub fn render(system: &System, recorder: &Recorder, length_ns: u64) -> String {
    let names = Names::of(system);
    let scale = (WIDTH - LEFT) / length_ns.max(1) as f64;
    let x = |ns: u64| LEFT + ns.min(length_ns) as f64 * scale;
    let late_row = f64::from(system.cpus) * ROW + 24.0;
    let height = late_row + 60.0 + names.vcpus.len().div_ceil(6) as f64 * 16.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n"
    );
    // Writing to a string does not fail.
    for cpu in 0..system.cpus {
        let y = f64::from(cpu) * ROW + 20.0;
        let _ = writeln!(svg, "<text x=\"4\" y=\"{}\">cpu {cpu}</text>", y + 18.0);
    }
    for stretch in recorder
        .stretches
        .iter()
        .filter(|stretch| stretch.start_ns < length_ns)
    {
        let y = f64::from(stretch.cpu) * ROW + 20.0;
        let (start, end) = (x(stretch.start_ns), x(stretch.end_ns));
        let fill = stretch.runner.map_or_else(|| "#eee".to_owned(), colour);
        let runner = stretch.runner.map_or("nobody", |vcpu| names.vcpu(vcpu));
        let task = stretch.task.map_or("no task", |task| names.task(task));
        let _ = writeln!(
            svg,
            "<rect x=\"{start:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"26\" fill=\"{fill}\" stroke=\"{}\" stroke-width=\"0.4\"><title>{} runs {} on the budget of {}, {} to {} ns</title></rect>",
            end - start,
            colour(stretch.holder),
            escape(runner),
            escape(task),
            escape(names.vcpu(stretch.holder)),
            stretch.start_ns,
            stretch.end_ns
        );
    }
    let _ = writeln!(svg, "<text x=\"4\" y=\"{}\">late</text>", late_row + 10.0);
    for job in recorder
        .jobs
        .iter()
        .filter(|job| job.finish_ns > job.deadline_ns && job.deadline_ns < length_ns)
    {
        let _ = writeln!(
            svg,
            "<rect x=\"{:.2}\" y=\"{late_row}\" width=\"2\" height=\"12\" fill=\"#c00\"><title>{}: due {} ns, done {} ns</title></rect>",
            x(job.deadline_ns),
            escape(names.task(job.task)),
            job.deadline_ns,
            job.finish_ns
        );
    }
    let axis = late_row + 30.0;
    for tick in 0..=10_u64 {
        let time = length_ns / 10 * tick;
        let _ = writeln!(
            svg,
            "<text x=\"{:.2}\" y=\"{axis}\" text-anchor=\"middle\">{:.1} ms</text>",
            x(time).min(WIDTH - 24.0),
            time as f64 / 1e6
        );
    }
    for (vcpu, name) in names.vcpus.iter().enumerate() {
        let (column, row) = ((vcpu % 6) as f64, (vcpu / 6) as f64);
        let (left, top) = (LEFT + column * 180.0, axis + 16.0 + row * 16.0);
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{}\" y=\"{top}\">{}</text>",
            top - 9.0,
            colour(vcpu as u32),
            left + 14.0,
            escape(name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Hues a golden angle apart: neighbours differ.
fn colour(vcpu: u32) -> String {
    format!("hsl({} 60% 60%)", (u64::from(vcpu) * 137) % 360)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
