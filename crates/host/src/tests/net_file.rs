//! The network part of steadyvm.toml: what it says, and how what is wrong with it is told.

use proptest::prelude::*;

use crate::Blame;
use crate::cpu_set::CpuSet;
use crate::discover::VmSelector;
use crate::profile::{Class, ThreadPriority, VmProfile, file};
use steadyvm_config::User;

fn refusal(text: &str) -> String {
    let error = file::parse("steadyvm.toml", text).unwrap_err();
    assert_eq!(error.blame(), Blame::Input, "{error}");
    error.to_string()
}

#[test]
fn a_class_takes_what_it_does_not_set_from_the_one_it_extends() {
    let profile = file::parse(
        "steadyvm.toml",
        r#"
        [net]
        budget_packets = 64
        [kernel]
        ksoftirqd = 2
        [class.base]
        irq = 80
        vhost = 75
        tap_batch = 64
        [class.rt]
        extends = "base"
        vhost = 76
        path_cpus = [1, 3]
        period = "5ms"
        [[nic]]
        name = "eth1"
        class = "rt"
        queues = [{ queue = 1, class = "base" }]
        steer = [{ queue = 1, udp = 7 }]
        [[vm]]
        name = "game"
        class = "rt"
        [[vm]]
        name = "batch"
        rt = false
        "#,
    )
    .unwrap();
    let nic = &profile.nics[0];
    assert_eq!(nic.class.irq, Some(ThreadPriority::Fifo(80)));
    assert_eq!(nic.class.vhost, Some(ThreadPriority::Fifo(76)));
    assert_eq!(nic.class.cpus.as_ref().unwrap().to_string(), "1,3");
    assert_eq!(nic.class.tap_batch, Some(64));
    assert_eq!(nic.queues[&1].vhost, Some(ThreadPriority::Fifo(75)));
    assert_eq!(nic.steer[0].to_string(), "UDP port 7 to queue 1");
    assert_eq!(profile.softirqs.budget_packets, Some(64));
    assert_eq!(profile.softirqs.ksoftirqd, Some(ThreadPriority::Fifo(2)));
    let names: Vec<&str> = profile.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(
        names,
        ["game"],
        "a VM without a class with ranks is the plan's alone"
    );
}

#[test]
#[allow(clippy::too_many_lines)] // a table of cases
fn what_is_wrong_is_told_with_its_place() {
    let nic = "[[nic]]\nname = \"eth1\"\nclass = \"rt\"\n";
    let class = "[class.rt]\nirq = 80\n";
    let limited = "[[vm]]\nname = \"a\"\nnic = \"eth1\"\nreceive = { budget = ";
    for (text, place, what) in [
        ("[class.rt]\nirq = 99\n".to_owned(), "line 2", "1 to 98"),
        ("[class.rt]\nirq = 0\n".to_owned(), "line 2", "1 to 98"),
        ("[class.rt]\nirq = -1\n".to_owned(), "line 2", "1 to 98"),
        (
            "[class.rt]\nirq = \"high\"\n".to_owned(),
            "line 2",
            "normal",
        ),
        (
            "[class.rt]\nirqs = 80\n".to_owned(),
            "line 2",
            "unknown field `irqs`",
        ),
        ("[nett]\n".to_owned(), "line 1", "unknown field `nett`"),
        (
            nic.replace("\"rt\"", "\"fast\""),
            "line 1",
            "no class \"fast\"",
        ),
        (
            format!(
                "[class.own]\nrt = true\n{}",
                nic.replace("\"rt\"", "\"own\"")
            ),
            "line 3",
            "no settings for the network",
        ),
        (format!("{class}{nic}{nic}"), "line 6", "twice"),
        (
            format!("{class}{nic}steer = [{{ queue = 0 }}]\n"),
            "line 6",
            "exactly one",
        ),
        (
            format!("{class}[[vm]]\nname = \"a\"\nreceive = {{ budget = \"2ms\" }}\n"),
            "line 5",
            "the VM names none",
        ),
        (
            format!("{class}{limited}\"11ms\" }}\n"),
            "line 6",
            "longer than its period",
        ),
        (
            format!("{class}{limited}\"4us\" }}\n"),
            "line 6",
            "at least one packet",
        ),
        (
            format!("{class}{limited}\"1ms\", packet = \"0ns\" }}\n"),
            "line 6",
            "costs nothing",
        ),
        (
            format!("{class}{limited}\"1ms\", period = \"5s\" }}\n"),
            "line 6",
            "out of range",
        ),
        (
            format!("{class}{nic}steer = [{{ queue = 0, mac = \"1:2\" }}]\n"),
            "line 6",
            "hardware",
        ),
        (
            format!("{class}{nic}steer = [{{ queue = 0, udp = 0 }}]\n"),
            "line 6",
            "port 0",
        ),
        (
            "[net]\nbudget_time = \"10us\"\n".to_owned(),
            "line 2",
            "[net] budget_time = \"10us\" is out of range; use \"1ms\" to \"1s\", whole microseconds",
        ),
        (
            "[kernel]\nfair_server = \"100us\"\n".to_owned(),
            "line 2",
            "\"500us\" to \"50ms\"",
        ),
        (
            "[kernel]\nfair_server = \"600500ns\"\n".to_owned(),
            "line 2",
            "whole microseconds",
        ),
        (
            "[[vm]]\nname = \"a\"\nvhost = 3\n".to_owned(),
            "line 1",
            "a VM has vhost from its class",
        ),
        (
            "[net]\nbudget_packets = 0\n".to_owned(),
            "line 2",
            "1 to 65536",
        ),
        (
            format!("[class.rt]\npath_cpus = []\n{nic}"),
            "line 1",
            "path_cpus is empty",
        ),
        (
            format!("[class.rt]\npath_cpus = [99999]\n{nic}"),
            "line 1",
            "no CPU 99999",
        ),
        (
            format!("[class.a]\nextends = \"rt\"\n[class.rt]\nextends = \"a\"\n{nic}"),
            "line 3",
            "rt -> a -> rt",
        ),
        (
            format!(
                "[class.own]\nirq = 70\nvhost = 75\n{}",
                nic.replace("\"rt\"", "\"own\"")
            ),
            "line 4",
            "irq = 70 stands below vhost = 75",
        ),
        (
            format!("[class.rt]\nirq = 70\n{nic}"),
            "line 3",
            "irq = 70 stands below napi = 78, which waits for it; use irq >= napi",
        ),
        (
            format!("[kernel]\nksoftirqd = 80\n{class}{nic}"),
            "line 5",
            "ksoftirqd = 80",
        ),
        (
            format!("[net]\nlevels_from = 30\n[kernel]\nksoftirqd = 30\n{class}{nic}"),
            "line 4",
            "ksoftirqd = 30 does not stand below [net] levels_from = 30",
        ),
        (String::new(), "line 1", "nothing in it is for the network"),
        ("[net\n".to_owned(), "line 1", ""),
    ] {
        let message = refusal(&text);
        assert!(
            message.starts_with(&format!("steadyvm.toml {place} ")),
            "{text}: {message}"
        );
        assert!(message.contains(what), "{text}: {message}");
    }
}

#[test]
fn where_a_vm_runs_is_told_with_its_place_where_it_is_wrong() {
    for (text, place, what) in [
        (
            "[[vm]]\nname = \"a\"\nunit = \"web\"\n".to_owned(),
            "line 3",
            "VM \"a\": \"web\" is no systemd unit",
        ),
        (
            "[[vm]]\nname = \"a\"\nunit = \"/x/web.service\"\n".to_owned(),
            "line 3",
            "such as \"web.service\"",
        ),
        (
            "[[vm]]\nname = \"a\"\nunit = \"web@.service\"\n".to_owned(),
            "line 3",
            "\"web@.service\" is a template",
        ),
        (
            "[[vm]]\nname = \"a\"\ncgroup = \"/a\\u001b[2J\"\n".to_owned(),
            "line 3",
            "\"/a\\u{1b}[2J\" is no cgroup of a VM",
        ),
        (
            "[[vm]]\nname = \"a\\u001b[2J\"\n".to_owned(),
            "line 1",
            "the VM's name \"a\\u{1b}[2J\" has control characters",
        ),
        (
            "[[vm]]\nname = \"a\"\nuser = []\n".to_owned(),
            "line 3",
            "VM \"a\": `user` names no user",
        ),
        (
            "[[vm]]\nname = \"a\"\nuser = \"a b\"\n".to_owned(),
            "line 3",
            "`user` names no user",
        ),
        (
            "[[vm]]\nname = \"a\"\nuser = [-1]\n".to_owned(),
            "line 3",
            "a user by name or number",
        ),
        (
            "[[vm]]\nname = \"a\"\ncgroup = \"/\"\n".to_owned(),
            "line 3",
            "\"/\" is no cgroup of a VM",
        ),
        (
            "[[vm]]\nname = \"a\"\ncgroup = \"/sys/fs/cgroup/web\"\n".to_owned(),
            "line 3",
            "without /sys/fs/cgroup",
        ),
        (
            "[[vm]]\nname = \"a\"\nunit = \"web.service\"\ncgroup = \"/web\"\n".to_owned(),
            "line 4",
            "both a unit and a cgroup",
        ),
        (
            "[[vm]]\nunit = \"web.service\"\n".to_owned(),
            "line 1",
            "this VM has no name",
        ),
        (
            "[[vm]]\nname = \"a\"\nunit = 3\n".to_owned(),
            "line 3",
            "expected a string",
        ),
        (
            "[[vm]]\nname = \"a\"\nunit = \"web.service\"\n".to_owned(),
            "line 1",
            "nothing in it is for the network",
        ),
    ] {
        let message = refusal(&text);
        assert!(
            message.starts_with(&format!("steadyvm.toml {place} ")),
            "{text}: {message}"
        );
        assert!(message.contains(what), "{text}: {message}");
    }
}

#[test]
fn batches_and_levels_out_of_range_are_told_with_their_place() {
    for (text, place, what) in [
        ("[class.rt]\ntap_batch = 0\n", "line 2 column 13", "1 to 64"),
        (
            "[class.rt]\nvhost = 7\ntap_batch = 65\n",
            "line 3 column 13",
            "tap_batch 65 is not one of 1 to 64",
        ),
        (
            "[class.rt]\ntap_batch = -1\n",
            "line 2 column 13",
            "1 to 64",
        ),
        (
            "[class.rt]\ntap_batch = \"all\"\n",
            "line 2 column 13",
            "type",
        ),
        ("[net]\nlevels_from = 0\n", "line 2 column 15", "1 to 98"),
        (
            "# levels_from\n[net]\nlevels_from = 99\n",
            "line 3 column 15",
            "1 to 98",
        ),
    ] {
        let message = refusal(text);
        let place = format!("steadyvm.toml {place}: ");
        assert!(message.starts_with(&place), "{text}: {message}");
        assert!(message.contains(what), "{text}: {message}");
    }
}

#[test]
fn a_vm_is_found_by_its_name_or_by_the_unit_or_cgroup_that_it_says() {
    let profile = file::parse(
        "steadyvm.toml",
        r#"
        [[vm]]
        name = "a"
        class = "rt"
        [[vm]]
        name = "b"
        class = "rt"
        unit = 'machine-qemu\x2d1\x2db.scope'
        [[vm]]
        name = "c"
        cgroup = "/lxc/c"
        [[vm]]
        name = "d"
        "#,
    )
    .unwrap();
    let found: Vec<VmSelector> = profile.vms.iter().map(VmProfile::selector).collect();
    let expected = [
        VmSelector::Name("a".into()),
        VmSelector::Unit(r"machine-qemu\x2d1\x2db.scope".into()),
        VmSelector::Cgroup("/lxc/c".into()),
    ];
    assert_eq!(found, expected);
    // The plan's budgets find their VM by its name.
    assert_eq!(profile.vms[2].name, "c");
}

#[test]
fn the_users_of_a_vm_are_names_and_numbers() {
    let users = |written: &str| {
        let text = format!("[[vm]]\nname = \"a\"\nclass = \"rt\"\n{written}\n");
        file::parse("f", &text).unwrap().vms[0].users.clone()
    };
    assert_eq!(users(""), []);
    assert_eq!(users("user = 7"), [User::Number(7)]);
    assert_eq!(users("user = \"7\""), [User::Number(7)]);
    let expected = [User::Name("oneadmin".into()), User::Number(7)];
    assert_eq!(users("user = [\"oneadmin\", 7]"), expected);
}

#[test]
fn the_example_is_read() {
    let text = include_str!("../../../../examples/steadyvm.toml");
    let profile = file::parse("steadyvm.toml", text).unwrap();
    let nics: Vec<(&str, &str)> = profile
        .nics
        .iter()
        .map(|nic| (nic.name.as_str(), nic.class.name.as_str()))
        .collect();
    assert_eq!(nics, [("eth1", "rt"), ("eth0", "best-effort")]);
    assert_eq!(profile.vms.len(), 5, "control has no class");
}

#[test]
fn normal_stands_below_every_priority() {
    let wrong =
        refusal("[class.x]\nirq = \"normal\"\nvhost = 1\n[[nic]]\nname = \"e\"\nclass = \"x\"\n");
    assert!(
        wrong.contains("irq = normal stands below vhost = 1"),
        "{wrong}"
    );
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*", words in prop::collection::vec(
        prop::sample::select(vec![
            "[net]", "[class.a]", "[kernel]", "[[nic]]", "[[vm]]", "[[host_service]]", "rank = 5", "name = \"a\"", "\n", "irq = 3",
            "class = \"a\"", "unit = \"a.service\"", "cgroup = \"/a\"", "extends = \"a\"", "cpus = [1]", "queues = [{queue = 0, class = \"a\"}]",
        ]), 0..20))
    {
        let _ = file::parse("x", &text);
        let _ = file::parse("x", &words.join("\n"));
    }
}

#[test]
fn six_lines_are_enough_for_one_real_time_vm() {
    let text = "[[nic]]\nname = \"eth1\"\nclass = \"rt\"\n[[vm]]\nname = \"web\"\nclass = \"rt\"\n";
    let profile = file::parse("steadyvm.toml", text).unwrap();
    let ranks = crate::Priorities::default();
    let class = &profile.vms[0].class;
    assert_eq!(profile.nics[0].class, *class);
    assert_eq!(class.vcpu, Some(ThreadPriority::Fifo(ranks.vcpu)));
    assert_eq!(class.irq, Some(ThreadPriority::Fifo(ranks.irq)));
    // Another name is nobody's.
    let error = file::parse("steadyvm.toml", &text.replace("\"rt\"", "\"fast\"")).unwrap_err();
    assert!(error.to_string().contains("there is no class \"fast\""));
}

#[test]
fn a_built_in_class_that_is_written_keeps_what_it_leaves_out() {
    let named = |class: &str| {
        format!(
            "[[nic]]\nname = \"eth1\"\nclass = \"{class}\"\n[[vm]]\nname = \"web\"\nclass = \"{class}\"\n"
        )
    };
    let class_of = |name: &str, tables: &str| {
        let profile = file::parse("steadyvm.toml", &format!("{tables}\n{}", named(name))).unwrap();
        assert_eq!(profile.nics[0].class, profile.vms[0].class);
        profile.vms[0].class.clone()
    };
    let fifo = |priority| Some(ThreadPriority::Fifo(priority));
    let rt = Class::built_in("rt").unwrap();
    let with_cpus = Class {
        cpus: Some(CpuSet::single(1)),
        ..rt.clone()
    };
    assert_eq!(class_of("rt", "[class.rt]\npath_cpus = [1]"), with_cpus);
    // One with keys of the plan alone, too.
    assert_eq!(class_of("rt", "[class.rt]\nperiod = \"10ms\""), rt);
    // What is switched off stays off.
    let off = class_of("rt", "[class.rt]\nvhost = \"normal\"\nvcpu = \"normal\"");
    assert_eq!(
        (off.vhost, off.vcpu),
        (Some(ThreadPriority::Normal), Some(ThreadPriority::Normal))
    );
    assert_eq!((off.irq, off.napi), (rt.irq, rt.napi));
    let batch = class_of("best-effort", "[class.best-effort]\ntap_batch = 1");
    assert_eq!(
        (batch.tap_batch, batch.threaded_napi),
        (Some(1), Some(true))
    );
    assert_eq!(batch.napi, Some(ThreadPriority::Normal));
    // At the end of a chain, and not where it extends another.
    let through = "[class.own]\nextends = \"rt\"\n[class.rt]\nirq = 90";
    let own = class_of("own", through);
    assert_eq!((own.irq, own.vcpu), (fifo(90), rt.vcpu));
    let other = class_of(
        "rt",
        "[class.rt]\nextends = \"own\"\n[class.own]\nvcpu = 12",
    );
    assert_eq!((other.irq, other.vcpu), (None, fifo(12)));
}
