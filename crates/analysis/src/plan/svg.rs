//! A plan as a picture: one bar a CPU, one coloured part a VCPU.
//!
//! Rule: a pinned or dedicated VCPU stands on its CPU; CPUs that share VCPUs globally show each VCPU's
//! mean share. What no real-time VCPU claims is hatched. Overheads are not drawn.

use std::fmt::Write;

use super::Report;

const COLOURS: [&str; 8] = [
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee7733", "#009988",
];
const LEFT: f64 = 70.0;
const WIDTH: f64 = 640.0;
const BAR: f64 = 34.0;
const STEP: f64 = 46.0;

/// The picture.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, report);
    out
}

fn write(out: &mut String, report: &Report) -> std::fmt::Result {
    let rt: Vec<usize> = (0..report.vms.len())
        .filter(|&vm| report.vms[vm].rt)
        .collect();
    let best_effort: Vec<&str> = report
        .vms
        .iter()
        .filter(|vm| !vm.rt)
        .map(|vm| vm.name.as_str())
        .collect();
    let bars = report.cpus.len() as f64 * STEP;
    let height = 60.0 + bars + 24.0 * (rt.len() + 2) as f64;
    let total = LEFT + WIDTH + 20.0;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total} {height}\" width=\"{total}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
         <defs><pattern id=\"free\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"8\" height=\"8\" fill=\"#f4f4f4\"/>\
         <line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"8\" stroke=\"#d0d0d0\" stroke-width=\"3\"/></pattern></defs>\n\
         <rect width=\"{total}\" height=\"{height}\" fill=\"#ffffff\"/>"
    )?;
    let answer = if report.feasible {
        "feasible"
    } else {
        "not feasible"
    };
    let title = format!("{} CPUs under {}: {answer}", report.pcpus, report.scheduler);
    writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"28\" font-weight=\"bold\">{title}</text>"
    )?;
    for (row, cpu) in report.cpus.iter().enumerate() {
        let y = 44.0 + row as f64 * STEP;
        let label = y + BAR * 0.65;
        writeln!(out, "<text x=\"10\" y=\"{label}\">CPU {}</text>", cpu.cpu)?;
        writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{BAR}\" fill=\"url(#free)\" \
             stroke=\"#888888\"/>"
        )?;
        write_vcpus(out, report, &rt, cpu.cpu, y)?;
    }
    let mut y = 44.0 + bars + 14.0;
    for (position, &vm) in rt.iter().enumerate() {
        let needs =
            report.vms[vm]
                .interface
                .as_ref()
                .map_or("no interface".to_owned(), |interface| {
                    format!(
                        "{:.3} CPUs on {} VCPUs",
                        interface.bandwidth, interface.vcpus
                    )
                });
        let text = format!("{}: {needs}", escape(&report.vms[vm].name));
        legend(out, COLOURS[position % COLOURS.len()], y, &text)?;
        y += 24.0;
    }
    let names = if best_effort.is_empty() {
        "free".to_owned()
    } else {
        best_effort.join(", ")
    };
    legend(
        out,
        "url(#free)",
        y,
        &format!("left for: {}", escape(&names)),
    )?;
    writeln!(out, "</svg>")
}

fn write_vcpus(
    out: &mut String,
    report: &Report,
    rt: &[usize],
    cpu: u32,
    y: f64,
) -> std::fmt::Result {
    let mut x = LEFT;
    for (position, &vm) in rt.iter().enumerate() {
        for vcpu in report.vms[vm]
            .vcpus
            .iter()
            .filter(|vcpu| vcpu.cpus.contains(&cpu))
        {
            let share = vcpu.budget as f64 / vcpu.period as f64 / vcpu.cpus.len() as f64;
            let width = WIDTH * share;
            let colour = COLOURS[position % COLOURS.len()];
            writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\" \
                 stroke=\"#ffffff\"/>"
            )?;
            let percent = format!("{:.0} %", share * 100.0);
            let full = format!("{} {percent}", report.vms[vm].name);
            // The longest label that fits.
            if let Some(label) = [full, percent].iter().find(|label| fits(label, width)) {
                let (x, y, label) = (x + 6.0, y + BAR * 0.65, escape(label));
                writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{y}\" fill=\"#ffffff\">{label}</text>"
                )?;
            }
            x += width;
        }
    }
    Ok(())
}

/// Whether a label fits a bar, at 9 units a character.
fn fits(label: &str, width: f64) -> bool {
    label.chars().count() as f64 * 9.0 <= width
}

fn legend(out: &mut String, fill: &str, y: f64, text: &str) -> std::fmt::Result {
    let (x, label) = (LEFT + 26.0, y + 13.0);
    writeln!(
        out,
        "<rect x=\"{LEFT}\" y=\"{y}\" width=\"16\" height=\"16\" fill=\"{fill}\" stroke=\"#888888\"/>\
         <text x=\"{x}\" y=\"{label}\">{text}</text>"
    )
}

fn escape(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A curve: x, y, and whether the mark is filled.
pub(super) struct Curve {
    pub name: String,
    pub marks: Vec<(f64, f64, bool)>,
}

/// Curves over one axis, whose ends are labelled; y begins at 0.
pub(super) fn curves(title: &str, ends: &[String; 2], curves: &[Curve]) -> String {
    let (height, below) = (260.0, 320.0);
    let all = || curves.iter().flat_map(|curve| &curve.marks);
    let low = all().map(|mark| mark.0).fold(f64::INFINITY, f64::min);
    let wide = (all().map(|mark| mark.0).fold(low, f64::max) - low).max(f64::MIN_POSITIVE);
    let top = all()
        .map(|mark| mark.1)
        .fold(0.0, f64::max)
        .max(f64::MIN_POSITIVE);
    let total = (
        LEFT + WIDTH + 20.0,
        below + 24.0 * (curves.len() + 1) as f64,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" \
         font-family=\"sans-serif\" font-size=\"14\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-weight=\"bold\">{2}</text>\n",
        total.0,
        total.1,
        escape(title)
    );
    let base = 40.0 + height;
    let _ = writeln!(
        out,
        "<path d=\"M{LEFT} 40V{base}H{}\" fill=\"none\" stroke=\"#444444\"/>\n\
         <text x=\"{}\" y=\"46\" text-anchor=\"end\">{top:.2}</text>\n\
         <text x=\"{}\" y=\"{base}\" text-anchor=\"end\">0</text>\n\
         <text x=\"{LEFT}\" y=\"{}\">{}</text>\n<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        LEFT + WIDTH,
        LEFT - 8.0,
        LEFT - 8.0,
        base + 18.0,
        escape(&ends[0]),
        LEFT + WIDTH,
        base + 18.0,
        escape(&ends[1]),
    );
    for (number, curve) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let place = |mark: &(f64, f64, bool)| {
            (
                LEFT + WIDTH * (mark.0 - low) / wide,
                base - height * mark.1 / top,
            )
        };
        let line: Vec<String> = (curve.marks.iter().map(place))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            line.join(" ")
        );
        for mark in &curve.marks {
            let (x, y) = place(mark);
            let fill = if mark.2 { colour } else { "#ffffff" };
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{colour}\"/>"
            );
        }
        let y = below + 24.0 * number as f64 + 20.0;
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"{colour}\"/>\n\
             <text x=\"{}\" y=\"{y}\">{}</text>",
            y - 12.0,
            LEFT + 22.0,
            escape(&curve.name)
        );
    }
    out.push_str("</svg>\n");
    out
}
