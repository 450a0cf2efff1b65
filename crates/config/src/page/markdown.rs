//! The reference page.

use std::fmt::Write as _;

use super::{INTRODUCTION, SECTIONS};

/// Where the design is; an installed host does not have these pages.
const DESIGN: &str = "What the plan's tables mean: [plan-file.md](../design/plan-file.md). Why the network's are as they are:\n\
                      [rt-profile.md](../design/rt-profile.md).";

/// docs/reference/steadyvm.toml.md.
pub fn markdown() -> String {
    let mut page = format!(
        "# steadyvm.toml\n\nThis page is generated: `steadyvm generate reference steadyvm.toml > docs/reference/steadyvm.toml.md`.\n\n{}\n\n{DESIGN}\n",
        INTRODUCTION.trim()
    );
    for section in SECTIONS {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "\n## {}", section.heading);
        let prose = section.prose();
        if !prose.is_empty() {
            let _ = writeln!(page, "\n{prose}");
        }
        if section.keys.is_empty() {
            continue;
        }
        page.push_str("\n| key | type | default | meaning |\n|---|---|---|---|\n");
        for key in section.keys {
            let _ = writeln!(
                page,
                "| {} | {} | {} | {} |",
                key.code(),
                key.kind,
                key.default,
                key.meaning()
            );
        }
    }
    page
}
