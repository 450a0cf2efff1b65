//! The dissertation's own figures, for orientation.

use steadyvm_report::{Grid, headers};

pub(super) fn shares() -> Grid {
    Grid {
        title: "The dissertation's table 4.2, on hardware, one core: the RT VM's share, %"
            .to_owned(),
        words: 1,
        headers: headers([
            "", "alone", "beside 1", "beside 2", "beside 3", "beside 4", "beside 5",
        ]),
        rows: vec![headers([
            "RT-Xen 2.1",
            "40.3",
            "40.2",
            "40.2",
            "40.2",
            "40.2",
            "40.2",
        ])],
    }
}

pub(super) fn misses() -> Grid {
    let row = |words: [&str; 6]| headers(words);
    Grid {
        title: "The dissertation's, on hardware: table 4.3 (alone, beside 1, beside 2) and 2.2 (overload)".to_owned(),
        words: 2,
        headers: headers(["", "", "1", "2", "3", "4, 5"]),
        rows: vec![
            row(["RT-Xen 2.1", "beside 0 to 2", "0", "0", "", ""]),
            row(["credit", "alone", "0.01 %", "0.5 %", "", ""]),
            row(["credit", "beside 1", "3.4 %", "15.3 %", "", ""]),
            row(["credit", "beside 2", "73.7 %", "40.7 %", "", ""]),
            row(["deferrable", "3 overloaded", "0", "0", "48 %", "0"]),
            row(["credit", "3 overloaded", "100 %", "0", "1.6 %", "0"]),
        ],
    }
}

pub(super) fn cost() -> Grid {
    let row = |words: [&str; 5]| headers(words);
    Grid {
        title: "The dissertation's table 2.1, on hardware: do_schedule, us, and the CPU time lost with it".to_owned(),
        words: 1,
        headers: headers(["", "p50", "p99", "max", "% of a CPU"]),
        rows: vec![
            row(["deferrable", "0.121", "0.250", "5.642", "0.21"]),
            row(["credit", "0.108", "0.328", "0.382", "0.04"]),
        ],
    }
}

pub(super) fn quanta() -> Grid {
    let row = |words: [&str; 3]| headers(words);
    Grid {
        title: "The dissertation's figure 2.4, on hardware: the first load with a miss, and what is lost of 50 %"
            .to_owned(),
        words: 1,
        headers: headers(["", "load %", "lost %"]),
        rows: vec![
            row(["1 ms", "48", "4"]),
            row(["100 us", "44", "12"]),
            row(["10 us", "30", "40"]),
            row(["1 us", "does not boot", ""]),
        ],
    }
}
