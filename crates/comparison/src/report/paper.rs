//! The published figures, for orientation.

use steadyvm_report::joined;

/// Table 2 and section 4.2 of Garcia, Shinjo and Pu 2018: method, mean, SD, p99 in µs, NetStream in
/// Gbit/s.
const PUBLISHED: [(&str, &str, [f64; 4]); 3] = [
    (
        "No method (vanilla Linux)",
        "vanilla",
        [123.0, 22.0, 184.9, 18.8],
    ),
    (
        "RT Preempt Patch Only",
        "preempt-rt",
        [91.8, 11.8, 120.5, 16.0],
    ),
    ("Dedicated processor", "dedicated", [58.1, 7.7, 80.8, 8.6]),
];

/// A section with the paper's figures, or nothing if none of its methods was compared.
pub(super) fn section(methods: &[&str]) -> String {
    let compared = PUBLISHED
        .iter()
        .filter(|(_, method, _)| methods.contains(method));
    let rows = joined(compared, |(published_as, method, figures)| {
        let cells = joined(figures, |figure| format!("<td>{figure:.1}</td>"));
        format!("<tr><th scope=\"row\">{method}</th><td>{published_as}</td>{cells}</tr>")
    });
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h2>For orientation: the paper’s figures, from hardware</h2>\n\
         <p>Garcia, Shinjo and Pu 2018, table 2 and section 4.2: two cores of an Intel i7-6700K, \
         10 Gbit/s Ethernet, Linux 4.1. Not measured here. Compare the order and the ratios of the \
         methods, never the microseconds.</p>\n\
         <div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th>method here</th>\
         <th>in the paper</th><th>mean, µs</th><th>SD, µs</th><th>p99, µs</th>\
         <th>NetStream, Gbit/s</th></tr></thead><tbody>{rows}</tbody></table></div>\n"
    )
}
