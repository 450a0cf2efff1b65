//! Files as a stranger writes them: each is answered, or refused in words that say what to write.
// Helpers of tests unwrap, too.
#![allow(clippy::unwrap_used)]

use steadyvm_analysis::plan::{self, Report, file, text};

const SERVICE: &str = "[[service]]\nvm = \"web\"\nc = \"2ms\"\nt = \"10ms\"\nlimit = \"5ms\"\n";

fn answered(text: &str) -> Report {
    let request = file::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    plan::run(&request).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    match file::parse(text) {
        Err(error) => error.to_string(),
        Ok(request) => plan::run(&request).unwrap_err().to_string(),
    }
}

#[test]
fn what_is_refused_says_what_to_write() {
    for (input, said) in [
        (SERVICE.replace("vm = \"web\"\n", ""), "any name will do"),
        (
            SERVICE.replace("[[service]]", "[service]"),
            "double brackets, [[service]]",
        ),
        (
            SERVICE.replace("c = ", "wcet = "),
            "c is the execution of one request",
        ),
        (
            SERVICE.replace("t = \"10ms\"", "rate = 100"),
            "t the time between two",
        ),
        (
            SERVICE.replace("limit", "deadline"),
            "limit the longest latency",
        ),
        (
            SERVICE.replace("2ms", "2 milliseconds"),
            "a time such as \"10ms\"",
        ),
        (
            SERVICE.replace("\"2ms\"", "2.5"),
            "a time is a text with its unit",
        ),
        (SERVICE.replace("2ms", "2MS"), "(ns, us, ms, s)"),
        (SERVICE.replace("2ms", "2h"), "(ns, us, ms, s)"),
        (SERVICE.replace("\"2ms\"", "2ms"), "line 3"),
        (SERVICE.replace("2ms", "0ms"), "greater than zero"),
        (
            SERVICE.replace("2ms", "-2ms"),
            "-2 ms: it must be greater than zero",
        ),
        (
            SERVICE.replace("2ms", "20ms"),
            "executes for 20 ms and the next comes after 10 ms: no CPU can keep up",
        ),
        (SERVICE.replace("10ms", "99999999999s"), "a time such as"),
        (SERVICE.replace("limit = \"5ms\"\n", ""), "limit is missing"),
        (
            format!("[host]\ncpus = 4\n{SERVICE}"),
            "numbers of CPUs such as \"2-15,18\"",
        ),
        (
            format!("[host]\nscheduler = \"pedf\"\n{SERVICE}"),
            "such as pcpus = 4",
        ),
        (
            format!("[[vm]]\nname = \"web\"\n{SERVICE}"),
            "such as\n  [host]\n  pcpus = 4",
        ),
        (
            "[host]\npcpus = 4\nscheduler = \"pedf\"\n[[vm]]\nname = \"web\"\ncpu = \"20%\"\n"
                .to_owned(),
            "no shares",
        ),
        ("{\"services\": []}".to_owned(), "this is JSON"),
        (
            format!("{SERVICE}name = \"a\"\n{SERVICE}name = \"a\"\n"),
            "a second service is called \"a\"",
        ),
    ] {
        let error = refused(&input);
        assert!(error.contains(said), "{input}\n{error}\nlacks {said}");
        assert!(
            !error.contains("i64") && !error.contains("sequence"),
            "{error}"
        );
    }
}

/// Two services of one VM share a VCPU; the answer tells them apart.
#[test]
fn two_services_in_one_vm_are_told_apart() {
    let report = answered(&(SERVICE.to_owned() + &SERVICE.replace("5ms", "8ms")));
    assert!(report.feasible, "{report:?}");
    let names: Vec<&str> = report.services.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["web", "web 2"]);
    // A reservation is for one task.
    assert!(report.vms[0].interface.as_ref().unwrap().deadline.is_none());
    let text = text::render(&report, false);
    assert!(text.contains("\n  web 2 in web: at most"), "{text}");
}

/// A number without a unit is refused, and the first note doubts a unit that is too small.
#[test]
fn a_forgotten_unit_is_called_out_first() {
    let input = SERVICE
        .replace("ms\"", "")
        .replace('"', "")
        .replace("vm = web", "vm = \"web\"");
    assert!(
        refused(&input).contains("line 3 column 5: a time is a text with its unit; write \"2ns\"")
    );
    let report = answered(&SERVICE.replace("ms\"", "ns\""));
    let first = report
        .notes
        .iter()
        .find(|note| !note.contains("no host is given"));
    assert!(
        first.unwrap().contains("is the unit right?"),
        "{:?}",
        report.notes
    );
}

/// What no number of CPUs mends does not read as if one did.
#[test]
fn a_limit_below_c_does_not_read_as_if_cpus_were_missing() {
    let report = answered(&SERVICE.replace("5ms", "1ms"));
    assert!(!report.feasible);
    let text = text::render(&report, false);
    let first = text.lines().next().unwrap();
    assert_eq!(
        first,
        "NOT feasible: 1 CPU under pedf; its VCPUs fit 1 CPU, which is not what is missing"
    );
    assert!(
        text.contains("no plan can do this") && text.contains("over limit 1 ms"),
        "{text}"
    );
}

/// Micro signs, huge limits and limits of just c are answered.
#[test]
fn unusual_values_are_answered() {
    for (from, to, bound) in [
        ("2ms", "200\u{b5}s", 5_000_000),
        ("5ms", "50000s", 10_000_000),
        ("5ms", "2ms", 2_000_000),
        ("\"2ms\"", "\"2 ms\"", 5_000_000),
    ] {
        let report = answered(&SERVICE.replace(from, to));
        assert!(report.feasible, "{to}: {report:?}");
        assert_eq!(report.services[0].bound, Some(bound), "{to}");
    }
}

/// The review's odd inputs, by its numbers, which are not in the tests above or in tests/plan.rs and tests/review.rs.
#[test]
fn the_reviews_odd_inputs() {
    let host = "[host]\npcpus = 1\nscheduler = \"pedf\"\n";
    let tasks = "tasks = [ { name = \"x\", c = \"2ms\", t = \"10ms\" } ]\n";
    let vm = |more: &str| format!("{host}[[vm]]\nname = \"a\"\n{more}\n{tasks}");
    let said = |text: &str| text::render(&answered(text), false);
    for (number, input, words) in [
        (1, String::new(), "The shortest plan is"),
        (
            6,
            vm("").replace("\"pedf\"", "\"edf\""),
            "expected one of `pedf`, `gedf`, `pdm`, `gdm`",
        ),
        (8, vm("vcpu = 2"), "how many VCPUs a VM has is vcpus"),
        (
            9,
            vm("scheduler = \"edf\"\ninterface = \"prm\"\nvcpus = 2\nperiod = \"2ms\""),
            "use \"mpr\" or \"dmpr\"",
        ),
        (
            10,
            vm("").replace("c = ", "d = \"11ms\", c = "),
            "d is 11 ms, more than the period t (10 ms)",
        ),
        (11, vm("period = \"1h\""), "a time such as \"10ms\""),
        (
            12,
            vm("period = \"0.0000001ms\""),
            "a time such as \"10ms\"",
        ),
    ] {
        let error = refused(&input);
        assert!(error.contains(words), "{number}: {error}");
    }
    // 3: no period: one is chosen, and the answer says which. 28, n2: the limit shortens the deadline.
    assert!(said(&vm("")).contains("chosen: "));
    let service = "[[service]]\nvm = \"a\"\ntask = \"x\"\nlimit = \"5ms\"\n";
    for period in [
        "\"10ms\"",
        "\"1ms\"",
        "{ from = \"1ms\", to = \"10ms\", step = \"1ms\" }",
    ] {
        let more = format!("scheduler = \"edf\"\ninterface = \"prm\"\nperiod = {period}");
        let report = answered(&(vm(&more) + service));
        assert!(
            report.feasible && report.services[0].bound <= Some(5_000_000),
            "{report:?}"
        );
    }
    // 33: tasks of a VM that is promised nothing.
    assert!(said(&vm("rt = false")).contains("nothing is promised to its tasks"));
    // 35, 36: a byte order mark, and lines of Windows.
    let plain = said(&vm("period = \"2ms\""));
    assert_eq!(said(&format!("\u{feff}{}", vm("period = \"2ms\""))), plain);
    assert_eq!(said(&vm("period = \"2ms\"").replace('\n', "\r\n")), plain);
    // 40: costs above the period.
    let costly = vm("scheduler = \"edf\"\ninterface = \"prm\"\nperiod = \"2ms\"")
        + "[host.overheads]\ncontext_switch = \"2ms\"\n";
    assert!(said(&costly).contains("lower [host.overheads], or give it a longer period"));
}

/// A4: the review's two guests that a Linux scheduler does not serve: the answer says what it needs of the guest.
#[test]
fn the_reviews_unaware_guests() {
    for (settings, tasks) in [
        (
            "scheduler = \"dm\"\ninterface = \"mpr\"\nperiod = \"2ms\"",
            "{ c = \"2ms\", t = \"3ms\" }, { c = \"2ms\", t = \"5ms\" }",
        ),
        (
            "scheduler = \"gedf\"\ninterface = \"dmpr\"\nvcpus = 2\nperiod = \"4ms\"",
            "{ c = \"6ms\", t = \"10ms\" }, { c = \"1ms\", t = \"20ms\" }",
        ),
    ] {
        let report = answered(&format!(
            "[host]\npcpus = 4\nscheduler = \"pedf\"\n[[vm]]\nname = \"a\"\n{settings}\ntasks = [ {tasks} ]\n"
        ));
        assert!(report.vms[0].vcpus.len() > 1, "{report:?}");
        let needs = |note: &String| note.contains("which Linux does not know");
        assert!(report.notes.iter().any(needs), "{:?}", report.notes);
    }
}
