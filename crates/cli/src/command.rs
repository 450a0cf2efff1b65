//! A program's command line, with its help as a terminal shows it.

use clap::{Command, CommandFactory, FromArgMatches};

use crate::help;

/// The command of a program.
#[must_use]
pub fn shown<C: CommandFactory>() -> Command {
    help::for_terminals(C::command())
}

/// What this program was called with; ends it for wrong use, and for help.
#[must_use]
pub fn read<C: CommandFactory + FromArgMatches>() -> C {
    let matches = shown::<C>().get_matches();
    C::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut shown::<C>()).exit())
}
