//! Keeps the scheduler loaded for threads named on the command line, without the rest of steadyvm:
//! `keep CONFIG RECORD NAME=TID ...` serves at its usual socket; `keep show`, `keep stop`, `keep apply CONFIG NAME=TID ...`
//! and `keep replay FILE REACTION_US` are as those of `steadyvm sched`.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use steadyvm_sched::config::Config;
use steadyvm_sched::service::{self, Reply, Request, Service};
use steadyvm_sched::{Record, Scheduler, is_attached};

type Threads = BTreeMap<String, Vec<u32>>;

fn threads(words: &[String]) -> Result<Threads, Box<dyn Error>> {
    let mut threads = Threads::new();
    for word in words {
        let (name, tid) = word.split_once('=').ok_or("write NAME=TID")?;
        threads
            .entry(name.to_owned())
            .or_default()
            .push(tid.parse()?);
    }
    Ok(threads)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let socket = Path::new(service::SOCKET);
    match words.first().map(String::as_str) {
        Some("show") if !is_attached() => println!("not attached"),
        Some("show") => {
            if let Reply::Standing(standing) = service::ask(socket, &Request::Show)? {
                print!("{}", standing.table());
            }
        }
        Some("stop") => service::end(socket)?,
        Some("apply") => {
            let config = Config::parse(&words[1], &std::fs::read_to_string(&words[1])?)?;
            let threads = threads(&words[2..])?;
            service::ask(socket, &Request::Apply { config, threads })?;
        }
        Some("replay") => {
            let record = Record::parse(&std::fs::read(&words[1])?)?;
            println!("{:?}", record.replay(words[2].parse::<u64>()? * 1000)?);
        }
        Some(file) => {
            let config = Config::parse(file, &std::fs::read_to_string(file)?)?;
            let record = (words[1] != "-").then(|| Path::new(&words[1]));
            let cpus = std::thread::available_parallelism()?.get() as u32;
            let mut service = Service::new(Scheduler::start(config.host().host(), record)?, cpus);
            service.apply(&config, &threads(&words[2..])?)?;
            service.serve(socket, || {
                println!("scheduling");
                Ok(())
            })?;
        }
        None => return Err("name a file".into()),
    }
    Ok(())
}
