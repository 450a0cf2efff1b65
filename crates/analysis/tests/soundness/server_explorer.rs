//! Exhaustive search over servers: every legal schedule of a few VCPUs on a host, slot by slot.
//!
//! An adversary decides, in every slot, which guests wake, sleep, end early, or sleep and wake at once, and
//! who comes first where deadlines tie and on which of its CPUs. Every reachable state is visited once, so a
//! yes holds for ever. The rules of the servers are written down here from their definitions (for the
//! constant-bandwidth server: kernel/sched/deadline.c); nothing is shared with the library.

use std::{collections::HashSet, hash::BuildHasherDefault};

/// The most servers.
pub const MOST: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A job of at most the budget in each period: periodic (idling) and polling servers.
    Job,
    /// Chunks: what a use takes comes back a period after the use began.
    Sporadic,
    /// Pieces of budget, each with the instant from which it may be used, its deadline a period later; what is used
    /// comes back then. A wake-up makes one piece, from now, of those that may be used (Stanovich et al., RTAS 2010;
    /// crates/sched-policy/policy/sporadic.h). `back`: slots to a piece's deadline, and its amount.
    Pieces,
    /// Hard constant-bandwidth server with `SCHED_DEADLINE`'s wake-up rule, the revised one where D < T.
    ConstantBandwidth,
}

/// A VCPU. Times in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vcpu {
    pub budget: u8,
    pub deadline: u8,
    pub period: u8,
    /// CPUs it may use, a bit each.
    pub cpus: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    EarliestDeadline,
    /// By relative deadline, ties in the order given.
    DeadlineMonotonic,
}

/// A server before a slot.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Server {
    pub ready: bool,
    /// What may still be executed by `due`.
    left: u8,
    /// Slots to the deadline of `left`; 0: none.
    due: u8,
    /// Slots to the next period; 0: it may begin at once.
    wait: u8,
    /// Constant bandwidth: the timer of the next period runs (`dl_throttled`): it begins then, also while the guest sleeps.
    throttled: bool,
    /// Sporadic: what is executed of this chunk, what waits for the next, and what comes back when.
    used: u8,
    pool: u8,
    back: [(u8, u8); 3],
}

pub type State = [Server; MOST];

/// `FxHash`: the states are many and small, and nobody attacks this table.
#[derive(Default)]
pub struct Hasher(u64);

impl std::hash::Hasher for Hasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u8(byte);
        }
    }
    fn write_u8(&mut self, byte: u8) {
        self.0 = (self.0.rotate_left(5) ^ u64::from(byte)).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

/// All asleep, with their budgets.
pub fn start(vcpus: &[Vcpu], kind: Kind) -> State {
    let mut start = State::default();
    for (server, vcpu) in start.iter_mut().zip(vcpus) {
        match kind {
            Kind::Sporadic => server.pool = vcpu.budget,
            Kind::Pieces => server.back[0] = (vcpu.period, vcpu.budget),
            _ => {}
        }
    }
    start
}

/// Whether every promise is kept in every schedule; `None` beyond `most` states.
pub fn holds(vcpus: &[Vcpu], kind: Kind, policy: Policy, most: usize) -> Option<bool> {
    assert!(vcpus.len() <= MOST);
    let start = start(vcpus, kind);
    let mut seen: HashSet<State, BuildHasherDefault<Hasher>> = HashSet::default();
    seen.insert(start);
    let mut frontier = vec![start];
    let (mut states, mut options, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(state) = frontier.pop() {
        states.clear();
        states.push(state);
        for (number, vcpu) in vcpus.iter().enumerate() {
            options.clear();
            choices(*vcpu, kind, state[number], &mut options);
            let before = states.len();
            for &option in &options[1..] {
                for index in 0..before {
                    let mut other = states[index];
                    other[number] = option;
                    states.push(other);
                }
            }
            for state in &mut states[..before] {
                state[number] = options[0];
            }
        }
        for &state in &states {
            runs.clear();
            let wants = (0..vcpus.len())
                .filter(|&v| wants(&state[v]))
                .fold(0_u8, |set, v| set | 1 << v);
            assignments(vcpus, policy, &state, wants, u8::MAX, 0, &mut runs);
            for &running in &runs {
                let after = match slot(vcpus, kind, state, running) {
                    After::State(after) => renamed(vcpus, policy, after),
                    After::Missed => return Some(false),
                    After::Unknown => return None,
                };
                if seen.insert(after) {
                    frontier.push(after);
                }
            }
        }
        if seen.len() > most {
            return None;
        }
    }
    Some(true)
}

/// VCPUs that are alike, and neighbours, may change names where ties are anybody's: one of the states stands for all.
fn renamed(vcpus: &[Vcpu], policy: Policy, mut state: State) -> State {
    if policy == Policy::EarliestDeadline {
        for alike in 0..vcpus.len() {
            for number in 1..vcpus.len() - alike {
                if vcpus[number] == vcpus[number - 1] && state[number] < state[number - 1] {
                    state.swap(number, number - 1);
                }
            }
        }
    }
    state
}

pub fn wants(server: &Server) -> bool {
    server.ready && server.left > 0
}

/// What a server may be in this slot.
pub fn choices(vcpu: Vcpu, kind: Kind, server: Server, options: &mut Vec<Server>) {
    let asleep = Server {
        ready: false,
        ..server
    };
    let awake = match kind {
        Kind::Job => job(vcpu, server),
        Kind::Sporadic => sporadic(vcpu, server),
        Kind::Pieces => pieces(vcpu, woken(vcpu, server)),
        Kind::ConstantBandwidth => constant_bandwidth(vcpu, server),
    };
    if !server.ready {
        options.push(asleep);
        options.push(awake);
        return;
    }
    options.push(begin(vcpu, kind, server));
    let slept = match kind {
        // What is left of a job is dropped.
        Kind::Job => Server {
            left: 0,
            due: 0,
            ..asleep
        },
        Kind::Sporadic => end_chunk(vcpu, asleep),
        Kind::Pieces => pieces(vcpu, asleep),
        Kind::ConstantBandwidth => asleep,
    };
    options.push(slept);
    // Sleeps and wakes at once: another chance for the wake-up rule.
    if kind != Kind::Job {
        let mut again = Vec::new();
        choices(vcpu, kind, slept, &mut again);
        options.push(again[1]);
    }
}

/// A ready server at the beginning of a period, or of a chunk.
fn begin(vcpu: Vcpu, kind: Kind, server: Server) -> Server {
    match kind {
        Kind::Sporadic if server.left == 0 => sporadic(vcpu, server),
        Kind::Sporadic | Kind::Pieces => server,
        _ if server.left == 0 && server.wait == 0 => fresh(vcpu, server),
        _ => server,
    }
}

fn fresh(vcpu: Vcpu, server: Server) -> Server {
    Server {
        ready: true,
        left: vcpu.budget,
        due: vcpu.deadline,
        wait: vcpu.period,
        throttled: false,
        ..server
    }
}

fn job(vcpu: Vcpu, server: Server) -> Server {
    if server.wait == 0 {
        fresh(vcpu, server)
    } else {
        server
    }
}

fn sporadic(vcpu: Vcpu, server: Server) -> Server {
    if server.pool == 0 {
        return Server {
            ready: true,
            ..server
        };
    }
    Server {
        ready: true,
        left: server.pool,
        due: vcpu.deadline,
        // The chunk's use comes back a period from now.
        wait: vcpu.period,
        used: 0,
        pool: 0,
        ..server
    }
}

fn end_chunk(_vcpu: Vcpu, mut server: Server) -> Server {
    if server.used > 0 {
        let slot = server.back.iter_mut().find(|(_, amount)| *amount == 0);
        // As many chunks at once as the budget has slots: at most 3.
        *slot.unwrap() = (server.wait, server.used);
        server.back.sort_unstable();
    }
    Server {
        left: 0,
        due: 0,
        wait: 0,
        used: 0,
        pool: server.pool + server.left,
        ..server
    }
}

/// In order, equal instants as one; what may be used now is `left`, by `due`. While it sleeps, the age of a piece that
/// may be used is forgotten.
fn pieces(vcpu: Vcpu, mut server: Server) -> Server {
    let mut sorted: Vec<(u8, u8)> = server
        .back
        .into_iter()
        .filter(|piece| piece.1 > 0)
        .collect();
    if !server.ready {
        for piece in &mut sorted {
            piece.0 = piece.0.max(vcpu.period);
        }
    }
    sorted.sort_unstable();
    server.back = Default::default();
    let mut count = 0;
    for piece in sorted {
        if count > 0 && server.back[count - 1].0 == piece.0 {
            server.back[count - 1].1 += piece.1;
        } else {
            server.back[count] = piece;
            count += 1;
        }
    }
    let (due, amount) = server.back[0];
    let usable = amount > 0 && due <= vcpu.period;
    (server.left, server.due) = if usable { (amount, due) } else { (0, 0) };
    server
}

fn woken(vcpu: Vcpu, mut server: Server) -> Server {
    for piece in server
        .back
        .iter_mut()
        .filter(|piece| piece.0 <= vcpu.period)
    {
        piece.0 = vcpu.period;
    }
    Server {
        ready: true,
        ..server
    }
}

/// A slot of a server of pieces; `None`: one that may be used was not, by its deadline.
fn pieces_slot(vcpu: Vcpu, mut server: Server, ran: bool) -> Option<Server> {
    if ran {
        server.back[0].1 -= 1;
        let again = (server.back[0].0 + vcpu.period, 1);
        match server
            .back
            .iter_mut()
            .find(|piece| piece.0 == again.0 && piece.1 > 0)
        {
            Some(piece) => piece.1 += 1,
            None => *server.back.iter_mut().find(|piece| piece.1 == 0)? = again,
        }
    }
    for piece in &mut server.back {
        piece.0 = piece.0.saturating_sub(1);
    }
    if server.ready && server.back.iter().any(|piece| piece.1 > 0 && piece.0 == 0) {
        return None;
    }
    Some(pieces(vcpu, server))
}

fn constant_bandwidth(vcpu: Vcpu, server: Server) -> Server {
    let awake = Server {
        ready: true,
        ..server
    };
    if server.due == 0 {
        // Deadline passed: a new period, or its wait (constrained deadlines, and exhausted ones).
        return if server.wait == 0 {
            fresh(vcpu, server)
        } else {
            // dl_check_constrained_dl
            Server {
                throttled: true,
                ..awake
            }
        };
    }
    if server.left == 0 {
        return awake; // throttled
    }
    let overflow = u16::from(server.left) * u16::from(vcpu.deadline)
        > u16::from(vcpu.budget) * u16::from(server.due);
    if !overflow {
        awake
    } else if vcpu.deadline == vcpu.period {
        fresh(vcpu, server)
    } else {
        let cut = u16::from(vcpu.budget) * u16::from(server.due) / u16::from(vcpu.deadline);
        Server {
            left: u8::try_from(cut).unwrap(),
            throttled: cut == 0,
            ..awake
        }
    }
}

/// Every set of servers that may run: in order of urgency, ties in any order, each on any free CPU of its own.
pub fn assignments(
    vcpus: &[Vcpu],
    policy: Policy,
    state: &State,
    waiting: u8,
    free: u8,
    running: u8,
    runs: &mut Vec<u8>,
) {
    let key = |v: usize| match policy {
        Policy::EarliestDeadline => (state[v].due, 0),
        Policy::DeadlineMonotonic => (vcpus[v].deadline, v),
    };
    let members = || (0..vcpus.len()).filter(|v| waiting >> v & 1 == 1);
    let Some(least) = members().map(key).min() else {
        if !runs.contains(&running) {
            runs.push(running);
        }
        return;
    };
    for next in members().filter(|&v| key(v) == least) {
        let rest = waiting & !(1 << next);
        let allowed = vcpus[next].cpus & free;
        if allowed == 0 {
            assignments(vcpus, policy, state, rest, free, running, runs);
        }
        for cpu in (0..8).filter(|cpu| allowed >> cpu & 1 == 1) {
            let free = free & !(1 << cpu);
            assignments(vcpus, policy, state, rest, free, running | 1 << next, runs);
            // CPUs that all may use are alike.
            if vcpus.iter().all(|other| other.cpus == vcpus[next].cpus) {
                break;
            }
        }
    }
}

/// What a slot ends in.
pub enum After {
    State(State),
    /// A promise is broken.
    Missed,
    /// More chunks than are followed.
    Unknown,
}

/// One slot.
pub fn slot(vcpus: &[Vcpu], kind: Kind, mut state: State, running: u8) -> After {
    for (number, (server, vcpu)) in state.iter_mut().zip(vcpus).enumerate() {
        let ran = running >> number & 1 == 1;
        if kind == Kind::Pieces {
            match pieces_slot(*vcpu, *server, ran) {
                Some(after) => *server = after,
                None => return After::Missed,
            }
            continue;
        }
        if ran {
            server.left -= 1;
            server.used += u8::from(kind == Kind::Sporadic);
        }
        let had = server.due > 0;
        server.due = server.due.saturating_sub(1);
        server.wait = server.wait.saturating_sub(1);
        for (until, amount) in &mut server.back {
            if *amount > 0 && *until == 0 {
                return After::Unknown;
            }
            if *amount > 0 {
                *until -= 1;
                if *until == 0 {
                    server.pool += *amount;
                    *amount = 0;
                }
            }
        }
        server.back.sort_unstable();
        if had && server.due == 0 && server.left > 0 && server.ready {
            return After::Missed;
        }
        match kind {
            Kind::Job if server.left == 0 => (server.ready, server.due) = (false, 0),
            Kind::Sporadic if server.left == 0 && had => {
                let ready = server.ready;
                *server = end_chunk(*vcpu, *server);
                server.ready = ready;
            }
            Kind::ConstantBandwidth if server.due == 0 => server.left = 0,
            _ => {}
        }
        if kind == Kind::ConstantBandwidth && server.left == 0 {
            server.throttled |= ran || server.due > 0;
            server.due = 0; // exhausted: only the next period counts
        }
        if kind == Kind::ConstantBandwidth && server.wait == 0 && server.left == 0 {
            // dl_task_timer: the next period begins, whether or not the guest is awake.
            let ready = server.ready;
            if ready || server.throttled {
                *server = fresh(*vcpu, *server);
                server.ready = ready;
            }
        }
    }
    After::State(state)
}
