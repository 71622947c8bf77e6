//! `sluice label`: sets or removes labels of a node. A different value is changed only with `--overwrite`, so that
//! nobody changes by accident what others rely on.

use std::collections::{BTreeMap, BTreeSet};

use sluice_common::api::NodeView;
use sluice_common::label::LabelChange;

use super::cordon::refusal;
use super::{move_nodes, outage_note};
use crate::args::{LabelArgs, LabelKind, MoveNodeArgs};
use crate::client::{Client, RetryLimit};
use crate::elsewhere::gpuctl::POOL_LABEL;
use crate::failure::Failure;
use crate::out::Out;
use crate::{render, show};

/// Pool of nodes that are in no other.
const DEFAULT_POOL: &str = "default";

pub(crate) fn run(client: &Client, args: &LabelArgs, out: Out) -> Result<u8, Failure> {
    check_once(&args.changes)?;
    match args.kind {
        LabelKind::Node => match pool_of(&args.changes)? {
            Some(pool) => move_to(client, &args.name, pool, out),
            None => node(client, args, out),
        },
    }
}

/// Returns the pool for which gpuctl's label stands; without a value, the one of nodes that are in no other.
fn pool_of(changes: &[LabelChange]) -> Result<Option<String>, Failure> {
    let is_pool = |change: &&LabelChange| change.key().as_str() == POOL_LABEL;
    match (changes.iter().find(is_pool), changes.len()) {
        (None, _) => Ok(None),
        (Some(change), 1) => {
            let pool = change.value().map_or(DEFAULT_POOL, |value| value.as_str());
            Ok(Some(pool.to_owned()))
        }
        (Some(_), _) => Err(Failure::Usage(format!(
            "`{POOL_LABEL}` moves the node to a pool: set it by itself, or write `sluice move node NODE --pool POOL`"
        ))),
    }
}

/// Moves a node to the pool of gpuctl's label, as `sluice move node` does.
fn move_to(client: &Client, name: &str, pool: String, out: Out) -> Result<u8, Failure> {
    let args = MoveNodeArgs {
        nodes: vec![name.to_owned()],
        pool,
        reason: None,
        deadline: None,
        wait: false,
        timeout: None,
    };
    move_nodes::run(client, &args, out)
}

fn node(client: &Client, args: &LabelArgs, out: Out) -> Result<u8, Failure> {
    let name = args.name.as_str();
    let refused = |error| Failure::Failed(refusal(client, name, &error));
    let read = || client.node(name);
    let before = client
        .keep_trying(RetryLimit::READ, outage_note(out), read)
        .map_err(refused)?;
    if !args.overwrite {
        check_overwritten(name, &before.labels, &args.changes)?;
    }
    for key in absent(&before.labels, &args.changes) {
        out.aside(&format!("{} has no label `{key}`", render::safe(name)));
    }
    let call = || client.label(name, &args.changes);
    let after = client
        .keep_trying(RetryLimit::CHANGE, outage_note(out), call)
        .map_err(refused)?;
    show::one(&after, out, line)?;
    Ok(0)
}

fn line(node: &NodeView) -> String {
    let name = render::safe(&node.name);
    format!("{name} {}", render::node::labels(&node.labels))
}

/// A key that is named twice has no clear meaning.
fn check_once(changes: &[LabelChange]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    match changes.iter().find(|change| !seen.insert(change.key())) {
        None => Ok(()),
        Some(twice) => Err(Failure::Usage(format!(
            "the label `{}` is named twice: name it once",
            twice.key()
        ))),
    }
}

type Labels = BTreeMap<String, String>;

fn check_overwritten(node: &str, has: &Labels, changes: &[LabelChange]) -> Result<(), Failure> {
    let overwritten = changes.iter().filter_map(|change| {
        let (old, new) = (has.get(change.key().as_str())?, change.value()?);
        (old != new.as_str()).then(|| format!("{}={}", change.key(), render::safe(old)))
    });
    let overwritten: Vec<String> = overwritten.collect();
    if overwritten.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(format!(
        "{} has {} already: --overwrite changes that",
        render::safe(node),
        overwritten.join(" and ")
    )))
}

/// Returns the keys to remove that do not exist.
fn absent<'a>(has: &Labels, changes: &'a [LabelChange]) -> impl Iterator<Item = &'a str> {
    let removed = changes.iter().filter(|change| change.value().is_none());
    removed
        .map(|change| change.key().as_str())
        .filter(|key| !has.contains_key(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(words: &str) -> Vec<LabelChange> {
        words.split(' ').map(|word| word.parse().unwrap()).collect()
    }

    #[test]
    fn another_value_is_not_written_over_by_accident() {
        let has: Labels = [("zone", "a"), ("rack", "7")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        for words in ["zone=a", "zone-", "team=x rack=7", "spot- rack-"] {
            check_overwritten("n", &has, &changes(words)).unwrap();
        }
        let error = check_overwritten("n", &has, &changes("zone=b rack=8 team=x")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "n has zone=a and rack=7 already: --overwrite changes that"
        );
        let all = changes("zone- spot- team=x");
        assert_eq!(absent(&has, &all).collect::<Vec<_>>(), ["spot"]);
    }

    #[test]
    fn the_label_of_gpuctl_for_the_pool_is_a_move() {
        let pool = |words| pool_of(&changes(words)).map_err(|e| e.to_string());
        assert_eq!(pool("zone=a"), Ok(None));
        assert_eq!(pool("runwhere.ai/pool=night"), Ok(Some("night".to_owned())));
        assert_eq!(pool("runwhere.ai/pool-"), Ok(Some("default".to_owned())));
        assert!(pool("runwhere.ai/pool=night zone=a").is_err());
    }

    #[test]
    fn a_key_is_named_once() {
        check_once(&changes("a=1 b=1 c-")).unwrap();
        let error = check_once(&changes("a=1 b=1 a-")).unwrap_err();
        assert!(matches!(error, Failure::Usage(_)), "{error}");
    }
}
