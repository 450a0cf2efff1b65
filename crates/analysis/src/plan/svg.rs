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
