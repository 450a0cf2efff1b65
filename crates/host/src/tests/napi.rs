//! Settings of each NAPI of a card: timers, threads.

use super::net::{FILE, host, kept, profile};
use super::scenario::{control, directory};
use crate::settings::links::{Deferral, Napi};
use crate::settings::threads::Scheduling;

/// Before Linux 6.13 by the device's files, since then by NAPI.
#[test]
fn a_ranked_cards_packets_wait_for_no_timer() {
    let deferred = Deferral {
        empty_polls: 2,
        timeout_ns: 20_000,
        suspend_ns: 30_000,
    };
    for has_one_per_napi in [false, true] {
        let (host, directory) = (host(), directory());
        let file = |card: &str, slot: u32, name: &str| {
            format!("/sys/devices/pci0000:00/0000:00:{slot:02}.0/net/{card}/{name}")
        };
        for (card, irq) in [("rt0", 30), ("bulk0", 34)] {
            host.writable_file(&file(card, irq, "napi_defer_hard_irqs"), "2\n");
            host.writable_file(&file(card, irq, "gro_flush_timeout"), "20000\n");
            let napi = |queue: u32| Napi {
                id: 100 * irq + queue,
                irq: Some(irq + queue),
                thread: None,
                deferral: has_one_per_napi.then_some(deferred),
                threaded: None,
            };
            host.edit(|state| state.napis.insert(card.into(), vec![napi(0), napi(1)]));
        }
        let before = host.state();
        let control = control(&host, &directory);
        control.apply_profile(&profile(FILE)).unwrap();
        let state = host.state();
        let deferrals =
            |card: &str| -> Vec<_> { state.napis[card].iter().map(|napi| napi.deferral).collect() };
        let by_file = &state.files[&file("rt0", 30, "gro_flush_timeout")];
        if has_one_per_napi {
            // The other queue is of a class without a rank.
            let expected = [Some(Deferral::default()), Some(deferred)];
            assert_eq!(deferrals("rt0"), expected);
            assert_eq!(by_file, "20000\n");
        } else {
            assert_eq!(by_file, "0\n");
            assert_eq!(state.files[&file("rt0", 30, "napi_defer_hard_irqs")], "0\n");
        }
        assert_eq!(state.napis["bulk0"], before.napis["bulk0"]);
        let of_other = file("bulk0", 34, "gro_flush_timeout");
        assert_eq!(state.files[&of_other], before.files[&of_other]);
        control.undo_profile().unwrap();
        assert_eq!(kept(host.state()), kept(before));
    }
}

/// Since Linux 6.17 a queue has a thread where its class has a rank; the others' polls cost no switch. No interrupt has a thread.
#[test]
fn queues_of_a_card_are_threaded_each_by_its_class() {
    let of_bulk = "[class.bulk]\nnapi = \"normal\"\n";
    for (text, expected) in [
        (
            "[[nic]]\nname = \"rt0\"\nclass = \"bulk\"\nqueues = [{ queue = 1, class = \"rt\" }]\n",
            [0, 1],
        ),
        (
            "[[nic]]\nname = \"rt0\"\nclass = \"rt\"\nqueues = [{ queue = 1, class = \"bulk\" }]\n",
            [1, 0],
        ),
        ("[[nic]]\nname = \"rt0\"\nclass = \"bulk\"\n", [1, 1]),
    ] {
        let (host, directory) = (host(), directory());
        let napi = |queue: u32| Napi {
            id: 3000 + queue,
            irq: Some(30 + queue),
            threaded: Some(0),
            ..Napi::default()
        };
        host.edit(|state| {
            let is_of_interrupt = |comm: &str| comm.starts_with("irq/");
            state.threads.retain(|_, it| !is_of_interrupt(&it.comm));
            state.napi_threads.clear();
            state.napis.insert("rt0".into(), vec![napi(0), napi(1)]);
        });
        let before = host.state();
        let control = control(&host, &directory);
        let wanted = profile(&format!("[class.rt]\nnapi = 78\n{of_bulk}{text}"));
        control.apply_profile(&wanted).unwrap();
        let state = host.state();
        let found: Vec<_> = state.napis["rt0"].iter().map(|it| it.threaded).collect();
        assert_eq!(found, expected.map(Some), "{text}");
        for napi in &state.napis["rt0"] {
            let Some(thread) = napi.thread else { continue };
            let is_rt = text.contains(&format!("queue = {}, class = \"rt\"", napi.id - 3000))
                || (text.contains("\"rt\"\nqueues") && napi.id == 3000);
            let rank = if is_rt {
                Scheduling::fifo(78, 0)
            } else {
                Scheduling::normal()
            };
            assert_eq!(state.threads[&thread].scheduling, rank, "{text}");
        }
        assert!(control.show().unwrap().settings.iter().all(|it| it.holds));
        control.undo_profile().unwrap();
        assert_eq!(kept(host.state()), kept(before), "{text}");
    }
}
