//! Prints the changes of the objects in files and folders as they happen.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{path::PathBuf, sync::Arc};

use admission::Admission;
use provider::{FileSource, Source};
use resources::Change;
use tokio::{sync::mpsc, task::JoinSet};

#[tokio::main]
async fn main() {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let (source, mut problems) = FileSource::new(paths, Arc::new(Admission::new()));
    let (tx, mut rx) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    tasks.spawn(source.run(tx));
    loop {
        tokio::select! {
            batch = rx.recv() => {
                let Some(batch) = batch else { return };
                for change in batch {
                    match change {
                        Change::Upsert(key, _) => println!("+ {key}"),
                        Change::Remove(key) => println!("- {key}"),
                        Change::Synced => println!("  all told"),
                        // Said by those who watch proxies, not by a source.
                        Change::Exclude(..) | Change::Readmit(_) => {}
                    }
                }
            }
            Ok(()) = problems.changed() => {
                for problem in problems.borrow().iter() {
                    println!("! {problem}");
                }
            }
        }
    }
}
