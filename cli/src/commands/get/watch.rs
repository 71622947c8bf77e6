//! `sluice get --watch`: the list as it is, then each row whenever it changes.
//!
//! Events only say that something happened, and to which step (`commands/changes.rs`). What is shown is always read
//! again, so nothing that an event lacks is missed. The stream is opened before the list is read, and after a lost
//! connection everything is read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::super::changes::{StaleRows, follow};
use super::super::outage_note;
use super::find;
use super::kinds::{self, Gettable};
use crate::args::GetArgs;
use crate::client::{Client, RetryLimit};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::listed;
use crate::render::table::Table;
use crate::show;

/// Least time between two reads of everything: bounds the load of a watcher on a busy cluster.
const REST: Duration = Duration::from_millis(200);
/// Steps that are read one by one; if more changed, all are listed.
const MAX_SINGLE: usize = 20;
/// Prints until the process ends.
pub(super) fn run<T: Gettable>(client: &Client, args: &GetArgs, out: Out) -> Result<u8, Failure> {
    let (send, news) = mpsc::channel();
    let follower = client.clone();
    thread::spawn(move || follow(&follower, &send, out));
    let mut watch = Watch {
        client,
        args,
        out,
        table: None,
        shown: BTreeMap::new(),
    };
    let mut touched = StaleRows::default();
    touched.wait(&news)?;
    let found = find::<T>(client, args, out)?;
    if found.items.is_empty() && !args.names.is_empty() {
        return Ok(FAILED);
    }
    if found.items.is_empty() {
        kinds::check_found(client, args)?;
    }
    watch.print(found.items)?;
    loop {
        let rested = Instant::now() + REST;
        let mut touched = StaleRows::default();
        touched.wait(&news)?;
        watch.refresh::<T>(&touched)?;
        thread::sleep(rested.saturating_duration_since(Instant::now()));
    }
}

struct Watch<'a> {
    client: &'a Client,
    args: &'a GetArgs,
    out: Out,
    table: Option<Table>,
    /// Last printed cells of each thing, without ages.
    shown: BTreeMap<String, Vec<String>>,
}

impl Watch<'_> {
    fn refresh<T: Gettable>(&mut self, touched: &StaleRows) -> Result<(), Failure> {
        // Every change of a step has an event.
        if touched.late && T::OWN_EVENTS {
            return Ok(());
        }
        let single = T::OWN_EVENTS && !touched.all && touched.steps.len() <= MAX_SINGLE;
        let mut items: Vec<T> = Vec::new();
        if single {
            for name in &touched.steps {
                items.extend(self.read(name)?);
            }
        } else if self.args.names.is_empty() {
            let all = || T::all(self.client, self.args);
            items = self
                .client
                .keep_trying(RetryLimit::Endless, outage_note(self.out), all)?;
            items.extend(self.left(&items)?);
        } else {
            for name in &self.args.names {
                items.extend(self.read(name)?);
            }
        }
        self.print(items)
    }

    /// Reads one thing, if it exists and is selected or was until now.
    fn read<T: Gettable>(&self, name: &str) -> Result<Option<T>, Failure> {
        if !self.args.names.is_empty() && !self.args.names.iter().any(|other| other == name) {
            return Ok(None);
        }
        let one = || T::one(self.client, name);
        match self
            .client
            .keep_trying(RetryLimit::Endless, outage_note(self.out), one)
        {
            Ok(item) => Ok((item.fits(self.args) || self.shown.contains_key(name)).then_some(item)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the shown things that the filters no longer select, so that their last row says why.
    fn left<T: Gettable>(&self, items: &[T]) -> Result<Vec<T>, Failure> {
        let here: BTreeSet<String> = items.iter().map(T::name).collect();
        let gone = self.shown.keys().filter(|name| !here.contains(*name));
        let read = gone.map(|name| self.read(name));
        read.filter_map(Result::transpose).collect()
    }

    /// Prints the rows that changed.
    fn print<T: Gettable>(&mut self, mut items: Vec<T>) -> Result<(), Failure> {
        items.retain(|item| self.shown.get(&item.name()) != Some(&mark(item)));
        for item in &items {
            if item.fits(self.args) {
                self.shown.insert(item.name(), mark(item));
            } else {
                self.shown.remove(&item.name());
            }
        }
        if !self.out.format().is_text() {
            return items.iter().try_for_each(|item| show::next(item, self.out));
        }
        let rows = listed::rows(&items, Timestamp::now());
        let mut text = String::new();
        let table = self.table.get_or_insert_with(|| {
            let mut table = Table::new(T::COLUMNS, self.out);
            table.make_room();
            table.measure(&rows);
            text = table.header();
            table
        });
        text.push_str(&table.rows(&rows));
        self.out.result(&text)
    }
}

/// Returns the cells without ages: at a time before all others every age is the same.
fn mark<T: Gettable>(item: &T) -> Vec<String> {
    let cells = item.cells(Timestamp::MIN);
    cells.iter().map(|cell| cell.text().to_owned()).collect()
}
