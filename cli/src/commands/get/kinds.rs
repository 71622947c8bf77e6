//! Lists of each kind: all of it or one by name, and its filters.

use std::collections::BTreeMap;

use sluice_common::api::{
    ClusterView, ErrorView, NodeView, PolicyView, PoolView, TemplateView, TopologyView,
    ValidationView,
};
use sluice_common::facts;
use sluice_common::nearest::nearest;
use sluice_common::state::{NodeState, StepState};

use crate::args::{GetArgs, GetKind, GetSince};
use crate::client::{ApiError, Client};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::listed::Listed;
use crate::render::node::closed;
use crate::render::platform::PoolPlatform;
use crate::render::safe;

/// States of nodes that an admin closed, besides their own states.
const CLOSED: [&str; 3] = ["cordoned", "draining", "drained"];

/// A kind that can be listed and watched.
pub(crate) trait Gettable: Listed + Sized {
    /// Returns all that the filters select, in display order.
    fn all(client: &Client, args: &GetArgs) -> Result<Vec<Self>, ApiError>;

    /// Returns the same as `all`, and tells what is left out.
    fn listed(client: &Client, args: &GetArgs, _out: Out) -> Result<Vec<Self>, ApiError> {
        Self::all(client, args)
    }

    /// Returns the one of this name.
    fn one(client: &Client, name: &str) -> Result<Self, ApiError>;

    /// Whether the filters select it.
    fn fits(&self, args: &GetArgs) -> bool;

    /// Returns the names that a wrong one may have meant; none for kinds with too many to search.
    fn known(client: &Client) -> Vec<String>;

    /// Whether a change has events of the thing itself; otherwise any event may mean a change.
    const OWN_EVENTS: bool;
}

/// A kind with labels.
pub(super) trait HasLabels {
    /// Returns its labels.
    fn labels(&self) -> &BTreeMap<String, String>;

    /// Whether the label filter selects it.
    fn has_labels(&self, args: &GetArgs) -> bool {
        let selector = args.selector.as_ref();
        selector.is_none_or(|selector| facts::selector_matches(selector, self.labels()))
    }
}

/// Returns the last `limit` items.
pub(super) fn last<T>(mut items: Vec<T>, limit: Option<usize>) -> Vec<T> {
    let surplus = items.len().saturating_sub(limit.unwrap_or(usize::MAX));
    items.drain(..surplus);
    items
}

impl Gettable for NodeView {
    fn known(client: &Client) -> Vec<String> {
        let nodes = client.nodes().unwrap_or_default();
        nodes.into_iter().map(|node| node.name).collect()
    }

    const OWN_EVENTS: bool = false;

    fn all(client: &Client, args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        let mut nodes = client.nodes()?;
        nodes.retain(|node| node.fits(args));
        Ok(nodes)
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        client.node(name)
    }

    fn fits(&self, args: &GetArgs) -> bool {
        let in_state = |word: &String| match word.as_str() {
            "cordoned" => self.cordon.is_some(),
            word => word == self.state.as_str() || closed(self) == Some(word),
        };
        (args.state.is_empty() || args.state.iter().any(in_state))
            && args.pool.as_ref().is_none_or(|pool| *pool == self.pool)
            && self.has_labels(args)
    }
}

impl HasLabels for NodeView {
    fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// Matches the node with each kind of its GPUs.
    fn has_labels(&self, args: &GetArgs) -> bool {
        let Some(selector) = &args.selector else {
            return true;
        };
        let with = |facts: &BTreeMap<String, String>| {
            let own = self.labels.clone().into_iter();
            let all = own.chain(facts.clone()).collect();
            facts::selector_matches(selector, &all)
        };
        match self.facts.is_empty() {
            true => facts::selector_matches(selector, &self.labels),
            false => self.facts.iter().any(with),
        }
    }
}

impl Gettable for PoolView {
    fn known(client: &Client) -> Vec<String> {
        let pools = client.pools().unwrap_or_default();
        pools.into_iter().map(|pool| pool.name).collect()
    }

    const OWN_EVENTS: bool = false;

    fn all(client: &Client, _args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        client.pools()
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        client.pool(name)
    }

    fn fits(&self, _args: &GetArgs) -> bool {
        true
    }
}

impl Gettable for PolicyView {
    fn known(client: &Client) -> Vec<String> {
        let all = policies(client, |_| true).unwrap_or_default();
        all.iter().map(Listed::name).collect()
    }

    const OWN_EVENTS: bool = false;

    fn all(client: &Client, args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        let wanted = |pool: &str| args.pool.as_ref().is_none_or(|only| only == pool);
        let mut found = policies(client, wanted)?;
        found.retain(|policy| policy.fits(args));
        Ok(found)
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        let (pool, subject) = name.split_once('/').unwrap_or((name, ""));
        client.policy(pool, subject)
    }

    fn fits(&self, args: &GetArgs) -> bool {
        let is = |wanted: &Option<String>, has: &String| wanted.as_ref().is_none_or(|it| it == has);
        is(&args.pool, &self.pool) && is(&args.subject, &self.subject)
    }
}

impl Gettable for PoolPlatform {
    fn known(client: &Client) -> Vec<String> {
        let pools = client.pools().unwrap_or_default();
        let all = pools.into_iter().flat_map(Self::of);
        all.map(|platform| platform.name()).collect()
    }

    const OWN_EVENTS: bool = false;

    fn all(client: &Client, args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        let all = client.pools()?.into_iter().flat_map(Self::of);
        Ok(all.filter(|platform| platform.fits(args)).collect())
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        let (pool, platform) = name.split_once('/').unwrap_or((name, ""));
        let mut found = Self::of(client.pool(pool)?);
        let found = found.find(|known| known.name == platform);
        found.ok_or_else(|| ApiError::Refused {
            status: 404,
            error: ErrorView {
                code: "unknown_platform".into(),
                message: format!(
                    "no node of pool `{}` is of platform `{}`",
                    safe(pool),
                    safe(platform)
                ),
                detail: Default::default(),
            },
        })
    }

    fn fits(&self, args: &GetArgs) -> bool {
        args.pool.as_ref().is_none_or(|pool| *pool == self.pool)
    }
}

impl Gettable for TemplateView {
    fn known(client: &Client) -> Vec<String> {
        let templates = client.templates().unwrap_or_default();
        templates.into_iter().map(|it| it.name).collect()
    }

    const OWN_EVENTS: bool = false;

    fn all(client: &Client, _args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        client.templates()
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        client.template(name)
    }

    fn fits(&self, _args: &GetArgs) -> bool {
        true
    }
}

/// A kind of which there is one, without a name.
trait Singleton: Listed + Sized {
    /// Returns it as the coordinator has it now.
    fn read(client: &Client) -> Result<Self, ApiError>;
}

impl Singleton for ClusterView {
    fn read(client: &Client) -> Result<Self, ApiError> {
        client.cluster()
    }
}

impl Singleton for TopologyView {
    fn read(client: &Client) -> Result<Self, ApiError> {
        client.topology()
    }
}

impl<T: Singleton> Gettable for T {
    fn known(_client: &Client) -> Vec<String> {
        Vec::new()
    }

    const OWN_EVENTS: bool = false;

    fn all(client: &Client, _args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        Ok(vec![Self::read(client)?])
    }

    fn one(client: &Client, _name: &str) -> Result<Self, ApiError> {
        Self::read(client)
    }

    fn fits(&self, _args: &GetArgs) -> bool {
        true
    }
}

impl Gettable for ValidationView {
    fn known(client: &Client) -> Vec<String> {
        let all = client.validations().unwrap_or_default();
        all.into_iter().map(|document| document.name).collect()
    }

    const OWN_EVENTS: bool = false;

    fn all(client: &Client, _args: &GetArgs) -> Result<Vec<Self>, ApiError> {
        client.validations()
    }

    fn one(client: &Client, name: &str) -> Result<Self, ApiError> {
        client.validation(name)
    }

    fn fits(&self, _args: &GetArgs) -> bool {
        true
    }
}

/// Returns the policies of the selected pools.
fn policies(client: &Client, wanted: impl Fn(&str) -> bool) -> Result<Vec<PolicyView>, ApiError> {
    let pools = client.pools()?.into_iter();
    let pools = pools.filter(|pool| wanted(&pool.name));
    let each = pools.map(|pool| client.policies(&pool.name));
    let each: Vec<Vec<PolicyView>> = each.collect::<Result<_, _>>()?;
    Ok(each.into_iter().flatten().collect())
}

/// Rejects filters that a kind does not have, instead of ignoring them.
pub(super) fn check(args: &GetArgs) -> Result<(), Failure> {
    use GetKind::{
        Allocations, Endpoints, Events, Labels, Nodes, Platforms, Policies, Services, Steps,
    };
    let filters = [
        (
            "--subject",
            args.subject.is_some(),
            &[Steps, Allocations, Services, Endpoints, Policies][..],
        ),
        ("--node", args.node.is_some(), &[Steps, Events]),
        ("--step", args.step.is_some(), &[Events]),
        ("--type", args.types.is_some(), &[Events]),
        ("--mine", args.mine, &[Steps, Allocations]),
        ("--name", args.name.is_some(), &[Steps]),
        ("--work", args.work.is_some(), &[Steps]),
        ("--array", args.array.is_some(), &[Steps]),
        ("--state", !args.state.is_empty(), &[Steps, Nodes]),
        (
            "--pool",
            args.pool.is_some(),
            &[Steps, Allocations, Services, Nodes, Policies, Platforms],
        ),
        ("--selector", args.selector.is_some(), &[Nodes, Steps]),
    ];
    let others = [
        ("--limit", args.limit.is_some(), &[Steps, Events][..]),
        ("--since", args.since.is_some(), &[Steps, Events]),
        ("--until", args.until.is_some(), &[Steps]),
        ("--all", args.all, &[Steps, Allocations]),
        ("--sort", args.sort.is_some(), &[Steps]),
        ("--parts", args.parts, &[Steps]),
        ("--tree", args.tree, &[Steps]),
        ("--key", args.key.is_some(), &[Labels]),
        ("--show-labels", args.show_labels, &[Nodes, Steps]),
    ];
    for (flag, given, kinds) in filters.into_iter().chain(others) {
        if given && !kinds.contains(&args.kind) {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.plural()).collect();
            return Err(Failure::Usage(format!(
                "{flag} is for {}: leave it out here",
                kinds.join(" and ")
            )));
        }
    }
    check_watch(args)?;
    check_since(args)?;
    check_names(args, filters.iter().any(|(_, given, _)| *given))?;
    check_states(args)
}

/// Rejects what only a list that ends has.
fn check_watch(args: &GetArgs) -> Result<(), Failure> {
    let flags = [
        ("--limit", args.limit.is_some()),
        ("--sort", args.sort.is_some()),
        ("--tree", args.tree),
    ];
    let mut set = flags.into_iter().filter(|(_, is_set)| *is_set);
    match set.next().filter(|_| args.watch) {
        None => Ok(()),
        Some((flag, _)) => Err(Failure::Usage(format!(
            "{flag} is for a list that ends: leave it out, or --watch"
        ))),
    }
}

/// Rejects the begin of one kind's list for the other's.
fn check_since(args: &GetArgs) -> Result<(), Failure> {
    let text = match (&args.since, args.kind) {
        (Some(GetSince::Time(_)), GetKind::Events) => {
            "--since: events begin at the number of one, such as 1200, or at `now`: `sluice get events` shows the numbers"
        }
        (Some(GetSince::Event(_)), GetKind::Steps) => {
            "--since: for steps write a duration such as `2h`, or a time such as `2026-01-31T08:00:00Z`; numbers are for events"
        }
        _ => return Ok(()),
    };
    Err(Failure::Usage(text.to_owned()))
}

fn check_names(args: &GetArgs, filtered: bool) -> Result<(), Failure> {
    match args.names.first() {
        Some(_) if args.kind == GetKind::Events => Err(Failure::Usage(
            "events have no names: choose with --step, --node, --type and --since".into(),
        )),
        Some(name) if filtered || args.limit.is_some() => Err(Failure::Usage(format!(
            "`{}` is one by name: leave the filters out",
            safe(name)
        ))),
        _ => Ok(()),
    }
}

fn check_states(args: &GetArgs) -> Result<(), Failure> {
    let known: Vec<&str> = match args.kind {
        GetKind::Nodes => NodeState::ALL
            .map(NodeState::as_str)
            .into_iter()
            .chain(CLOSED)
            .collect(),
        _ => StepState::ALL.map(StepState::as_str).into(),
    };
    for word in &args.state {
        if !known.contains(&word.as_str()) {
            let hint = hint(word, known.iter().copied());
            return Err(Failure::Usage(format!(
                "--state: `{}` is not a state: {hint}",
                safe(word)
            )));
        }
    }
    Ok(())
}

/// Suggests the nearest known word, or lists all.
pub(super) fn hint<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    if let Some(near) = nearest(word, known.clone()) {
        return format!("did you mean `{}`?", safe(near));
    }
    let mut words: Vec<String> = known.take(20).map(safe).collect();
    match words.len() {
        0 => "there is none".to_owned(),
        1 => format!("there is `{}`", words.remove(0)),
        _ => format!("there are {}", words.join(", ")),
    }
}

/// Suggests a similar name; empty if there is none.
pub(super) fn similar_name<T: Gettable>(client: &Client, name: &str) -> String {
    let known = T::known(client);
    let near = nearest(name, known.iter().map(String::as_str));
    near.map_or_else(String::new, |near| {
        format!("; did you mean `{}`?", safe(near))
    })
}

/// Explains an empty result if a filter names something that does not exist.
pub(super) fn check_found(client: &Client, args: &GetArgs) -> Result<(), Failure> {
    if let Some(pool) = &args.pool {
        let pools = client.pools()?;
        must_exist("pool", pool, pools.iter().map(|pool| pool.name.as_str()))?;
    }
    if let Some(node) = &args.node {
        let nodes = client.nodes()?;
        must_exist("node", node, nodes.iter().map(|node| node.name.as_str()))?;
    }
    Ok(())
}

fn must_exist<'a>(
    kind: &str,
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> Result<(), Failure> {
    if known.clone().any(|other| other == name) {
        return Ok(());
    }
    let hint = hint(name, known);
    Err(Failure::Failed(format!(
        "--{kind}: there is no {kind} `{}`: {hint}",
        safe(name)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use crate::render::node::tests::node;
    use crate::render::step::tests::running;
    use clap::Parser;

    fn typed(line: &str) -> GetArgs {
        let words = ["sluice", "get"].into_iter().chain(line.split(' '));
        match Args::try_parse_from(words).unwrap().command {
            Command::Get(args) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn filters_of_another_kind_are_refused() {
        for line in [
            "nodes --subject a",
            "pools --pool a",
            "steps --since 3",
            "steps --since now",
            "events --since 2h",
            "nodes --until 2h",
            "events --sort name",
            "pools --all",
            "steps --sort name -w",
            "pools -l zone=a",
            "events --state running",
            "steps --step a",
            "nodes --limit 3",
            "steps --limit 3 -w",
            "pools --show-labels",
            "events x",
            "steps x --pool a",
            "steps x --limit 1",
        ] {
            let error = check(&typed(line)).unwrap_err();
            assert!(matches!(error, Failure::Usage(_)), "{line}");
        }
        for line in [
            "nodes --pool a --state lost,cordoned -l zone=a",
            "steps --state running,queued --node n --name a --limit 3",
            "events --since 3 -w",
            "steps --since 2h --until 2026-01-31T08:00:00Z --sort -ended --limit 3",
            "steps --all --columns ID,WHY:.reason.code --no-headers",
            "events --since now -w",
            "events --step a --node n --type step_*,ended",
            "st x y -w",
            "steps x --show-labels",
            "nodes --show-labels -w",
        ] {
            check(&typed(line)).unwrap();
        }
    }

    #[test]
    fn unknown_words_are_answered_with_the_nearest_known() {
        let message = |line| check(&typed(line)).unwrap_err().to_string();
        assert_eq!(
            message("steps --state runing"),
            "--state: `runing` is not a state: did you mean `running`?"
        );
        assert!(message("nodes --state xyzzy").ends_with("lost, cordoned, draining, drained"));
        let known = ["default", "training"];
        let error = must_exist("pool", "trainin", known.into_iter()).unwrap_err();
        assert!(error.to_string().ends_with("did you mean `training`?"));
        let error = must_exist("pool", "x\u{1b}", known.into_iter()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--pool: there is no pool `x\\u{1b}`: there are default, training"
        );
        assert!(must_exist("pool", "x", std::iter::empty()).is_err());
        must_exist("pool", "default", known.into_iter()).unwrap();
    }

    #[test]
    fn filters_take_what_they_name() {
        let step = running();
        for (line, expected) in [
            ("steps", true),
            ("steps --state queued,running", true),
            ("steps --state queued", false),
            (
                "steps --node gpu-1 --pool default --subject dev --name train",
                true,
            ),
            ("steps --node gpu-2", false),
            ("steps --name other", false),
            ("steps -l team=vision,!spot", true),
            ("steps -l team!=vision", false),
        ] {
            assert_eq!(step.fits(&typed(line)), expected, "{line}");
        }
        let node = node();
        for (line, expected) in [
            ("nodes --state ready -l zone=a", true),
            ("nodes -l zone!=a", false),
            ("nodes --state cordoned", false),
            ("nodes --pool other", false),
        ] {
            assert_eq!(node.fits(&typed(line)), expected, "{line}");
        }
        assert_eq!(last(vec![1, 2, 3], Some(2)), [2, 3]);
        assert_eq!(last(vec![1, 2, 3], None), [1, 2, 3]);
    }
}
