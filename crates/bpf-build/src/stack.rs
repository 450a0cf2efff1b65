//! How much stack a compiled BPF program needs, with all that it calls.
//!
//! The kernel gives 512 bytes and eight functions to a program (`check_max_stack_depth` in kernel/bpf/verifier.c), and says so
//! when it loads it. Linux 6.13 and later give some programs more: the kernels of the lab do not agree, and the oldest decides.

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionKind};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// Bytes of stack: `MAX_BPF_STACK`.
pub const MOST_BYTES: u64 = 512;
/// Functions in a chain of calls: `MAX_CALL_FRAMES`.
pub const MOST_CALLS: usize = 8;

/// Bytes of an instruction.
const INSTRUCTION: u64 = 8;
/// A frame is a multiple of these: `round_up_stack_depth`.
const GRANULE: u64 = 16;
const FRAME_POINTER: u8 = 10;

const LOAD_DOUBLE_WORD: u8 = 0x18;
const MOVE_REGISTER: u8 = 0xbf;
const ADD_NUMBER: u8 = 0x07;
const CALL: u8 = 0x85;
/// `src_reg` of a call of another function of the object.
const PSEUDO_CALL: u8 = 1;
/// `src_reg` of a load of a function's address.
const PSEUDO_FUNCTION: u8 = 4;

/// Functions that call one another, from a program down, and the bytes of stack of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain(pub Vec<(String, u64)>);

impl Chain {
    /// Of all of them, bytes.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Whether the kernel takes it.
    pub fn fits(&self) -> bool {
        self.bytes() <= MOST_BYTES && self.0.len() <= MOST_CALLS
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes in {} calls:", self.bytes(), self.0.len())?;
        for (name, bytes) in &self.0 {
            write!(f, " {name} {bytes}")?;
        }
        Ok(())
    }
}

/// Why the stack of an object file cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No ELF file of 64 bits, or one that contradicts itself.
    #[error("cannot read the object file: {0}")]
    Object(#[from] object::Error),
    /// The symbol's place is not in its section.
    #[error("the function {0} is beyond its section")]
    Beyond(String),
}

/// A function's place: its section, and its first instruction there.
type Place = (usize, u64);

#[derive(Default)]
struct Function {
    name: String,
    frame: u64,
    calls: BTreeSet<Place>,
}

/// The chain of each function that needs the most stack, longest first. `elf`: an object file of clang for the target `bpf`.
///
/// # Errors
/// What is wrong with the file.
pub fn chains(elf: &[u8]) -> Result<Vec<Chain>, Error> {
    let functions = functions(elf)?;
    let mut chains: Vec<Chain> = functions
        .keys()
        .map(|place| deepest(&functions, *place, MOST_CALLS + 1))
        .collect();
    chains.sort_by_key(|chain| std::cmp::Reverse((!chain.fits(), chain.bytes())));
    Ok(chains)
}

/// The chain from `place` on that needs the most; one of `most` functions wherever one is as long.
fn deepest(functions: &BTreeMap<Place, Function>, place: Place, most: usize) -> Chain {
    let Some(function) = functions.get(&place).filter(|_| most > 0) else {
        return Chain(Vec::new());
    };
    let below = function
        .calls
        .iter()
        .map(|&callee| deepest(functions, callee, most - 1))
        .max_by_key(|chain| (chain.0.len() == most - 1, chain.bytes()));
    let mut chain = vec![(function.name.clone(), function.frame)];
    chain.extend(below.map(|below| below.0).unwrap_or_default());
    Chain(chain)
}

fn functions(elf: &[u8]) -> Result<BTreeMap<Place, Function>, Error> {
    let file: ElfFile64<'_> = ElfFile64::parse(elf)?;
    let mut functions = BTreeMap::new();
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let code = section.data()?;
        // Where an instruction names a function by a symbol: the symbol's place.
        let mut named: HashMap<u64, Option<Place>> = HashMap::new();
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(index) = relocation.target() else {
                continue;
            };
            let symbol = file.symbol_by_index(index)?;
            let place = symbol
                .section_index()
                .map(|section| (section.0, symbol.address()));
            named.insert(offset, place);
        }
        for symbol in file.symbols() {
            if symbol.kind() != object::SymbolKind::Text
                || symbol.section_index() != Some(section.index())
            {
                continue;
            }
            let name = symbol.name()?;
            let (from, end) = (symbol.address(), symbol.address() + symbol.size());
            let body = code
                .get(from as usize..end as usize)
                .ok_or_else(|| Error::Beyond(name.to_owned()))?;
            let mut function = read(body, from, section.index().0, &named);
            name.clone_into(&mut function.name);
            functions.insert((section.index().0, from), function);
        }
    }
    Ok(functions)
}

/// A function's frame, and what it calls. `from`: its place in the section.
fn read(body: &[u8], from: u64, section: usize, named: &HashMap<u64, Option<Place>>) -> Function {
    let mut function = Function::default();
    let mut lowest = 0;
    // The registers that hold the frame pointer, until they are written again.
    let mut copies = [false; 16];
    for (instruction, at) in body.chunks_exact(8).zip((from..).step_by(8)) {
        let code = instruction[0];
        let (to, of) = (instruction[1] & 15, instruction[1] >> 4);
        let offset = i64::from(i16::from_le_bytes([instruction[2], instruction[3]]));
        let number = i64::from(i32::from_le_bytes([
            instruction[4],
            instruction[5],
            instruction[6],
            instruction[7],
        ]));
        // By class: loads, stores and arithmetic.
        match code & 7 {
            1 if of == FRAME_POINTER => lowest = lowest.min(offset),
            2 | 3 if to == FRAME_POINTER => lowest = lowest.min(offset),
            _ => {}
        }
        if code == ADD_NUMBER && copies[usize::from(to)] {
            lowest = lowest.min(number);
        }
        if matches!(code & 7, 0 | 1 | 4 | 7) {
            copies[usize::from(to)] = code == MOVE_REGISTER && of == FRAME_POINTER;
        }
        let place = named.get(&at);
        let relative = match code {
            CALL if of == PSEUDO_CALL => (number + 1) * INSTRUCTION as i64,
            LOAD_DOUBLE_WORD if of == PSEUDO_FUNCTION || matches!(place, Some(Some(_))) => number,
            _ => continue,
        };
        let callee = match place {
            Some(Some((section, address))) => {
                Some((*section, address.wrapping_add_signed(relative)))
            }
            // A function of the kernel.
            Some(None) => None,
            None => Some((section, at.wrapping_add_signed(relative))),
        };
        function.calls.extend(callee);
    }
    function.frame = lowest.unsigned_abs().next_multiple_of(GRANULE);
    function
}
