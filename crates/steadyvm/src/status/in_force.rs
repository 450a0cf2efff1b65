//! What is in force, whatever a file says, for people.

use std::fmt::{Result, Write as _};

use steadyvm_host::{DemuxState, Status};

/// Each setting, with its value of before.
pub fn write_settings(shown: &Status, text: &mut String) -> Result {
    for setting in shown.settings.iter().filter(|setting| setting.holds) {
        writeln!(
            text,
            "{}: {} -> {}",
            setting.subject, setting.old, setting.new
        )?;
    }
    for pending in &shown.pending {
        writeln!(text, "not set yet, apply again: {pending}")?;
    }
    Ok(())
}

/// What is no setting: packets that were sorted, what the kernel refused, strays.
pub fn write_rest(shown: &Status, text: &mut String) -> Result {
    if let Some(demux) = &shown.demux {
        write_demux(demux, text)?;
    }
    for skipped in &shown.skipped {
        writeln!(text, "refused by the kernel: {skipped}")?;
    }
    for stray in &shown.strays {
        writeln!(text, "stray on the dedicated CPU: {stray}")?;
    }
    for line in &shown.unreadable {
        writeln!(text, "the journal's {line}")?;
    }
    Ok(())
}

fn write_demux(demux: &DemuxState, text: &mut String) -> Result {
    let counted = &demux.packets;
    let levels: Vec<String> = counted.levels.iter().map(ToString::to_string).collect();
    writeln!(
        text,
        "early demultiplexing, packets by level: {} ({} to ports, {} without a process, {} fragments, {} malformed, {} \
         to unknown ports, {} not handed over)",
        levels.join(", "),
        counted.to_ports,
        counted.to_kernel,
        counted.fragments,
        counted.malformed,
        counted.unknown_ports,
        counted.not_sent
    )?;
    for port in demux.ports.iter().filter(|port| port.priority > 0) {
        writeln!(
            text,
            "{:?} port {}: priority {}",
            port.protocol, port.port, port.priority
        )?;
    }
    Ok(())
}
