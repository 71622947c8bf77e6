//! Checks a step, with everything filled in, against the validation documents of a pool.
//!
//! An assertion about a step alone must hold. Of the pool's hosts of a platform that the step asks for, one must
//! satisfy all assertions about hosts together; a pool without such hosts checks nothing here.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::amount::{MCPU, MGPU};
use sluice_common::id::{PlatformName, PoolName, ValidationName};
use sluice_common::inventory::Gpu;
use sluice_common::platform::{self, spec};
use sluice_common::step::StepSpec;
use sluice_common::validation::{
    NodeFacts, ParsedAssertion, RuleFailure, RuleResult, StepFacts, StepOnNode,
};
use sluice_reasons::Rejection;
use sluice_reasons::check::{AssertionOutcome, Check};
use sluice_reasons::rejection::{AssertionSource, FailedAssertion, FailingHost};
use sluice_scheduler::Request;

use crate::context::Context;
use crate::model::node::Node;
use crate::model::pool::Pool;

/// Most hosts that a rejection lists: the nearest ones.
pub(crate) const MAX_NEAREST_HOSTS: usize = 10;

/// An assertion, with its document and who names that.
pub(crate) struct DocumentAssertion {
    document: ValidationName,
    asserted: ParsedAssertion,
    /// The platform that names the document; `None` if the pool does.
    platform: Option<PlatformName>,
}

/// Assertions that are checked together: a pool's own, or with them those of a platform that a step may be granted
/// there.
pub(crate) struct RuleSet<'a> {
    pool: &'a PoolName,
    /// The platform, and whether the step may be granted it only because it takes any.
    platform: Option<(&'a PlatformName, bool)>,
    /// The platforms of the hosts to check; any if empty.
    of: Vec<PlatformName>,
}

/// A host that fails some assertions about hosts.
pub(crate) struct HostFailures<'a> {
    node: &'a str,
    /// The failed assertions.
    broken: Vec<(&'a DocumentAssertion, RuleFailure)>,
}

/// The rejection by the validations of a pool; `None` if the step passes. `spec` is the step with everything filled
/// in.
pub(crate) fn invalid_in(
    ctx: &Context,
    pool: &PoolName,
    request: &Request,
    spec: &StepSpec,
) -> Option<Rejection> {
    let known = ctx.state().pool(pool)?;
    let mut rule_sets = rule_sets(ctx, known, request).into_iter();
    rule_sets.find_map(|rule_set| invalid_before(ctx, &rule_set, known, StepFacts(spec)))
}

/// The rejection by the rule sets; `None` if the step passes.
pub(crate) fn invalid_before(
    ctx: &Context,
    rule_set: &RuleSet<'_>,
    pool: &Pool,
    step: StepFacts<'_>,
) -> Option<Rejection> {
    let mut rules = rules_of(ctx, pool, rule_set.platform());
    if rule_set.platform.is_some() && rules.iter().any(|rule| rule.asserted.is_about_hosts()) {
        // One host of the platform must pass all of them.
        let mut all = rules_of(ctx, pool, None);
        all.retain(|rule| rule.asserted.is_about_hosts());
        rules.splice(0..0, all);
    }
    let (about_hosts, about_step): (Vec<DocumentAssertion>, Vec<DocumentAssertion>) = rules
        .into_iter()
        .partition(|rule| rule.asserted.is_about_hosts());
    let broken = about_step
        .iter()
        .find_map(|rule| Some((rule, failure(rule.asserted.evaluate(&step))?)));
    if let Some((rule, failure)) = broken {
        let assert = rule.asserted.source.assert.clone();
        let found = failure.values;
        return Some(rule_set.rejects(rule, FailedAssertion::Step { assert, found }));
    }
    no_host_keeps(ctx, rule_set, pool, step, &about_hosts)
}

/// The rule sets of a step: the pool's own documents first, then those of each platform that the step may be granted.
pub(crate) fn rule_sets<'a>(ctx: &Context, pool: &'a Pool, request: &Request) -> Vec<RuleSet<'a>> {
    let asked = ctx.state().asked_in(&pool.name, request);
    let platforms = pool.platforms.iter();
    let strict = platforms.filter(|(_, platform)| !platform.terms.validations.is_empty());
    let gpus = request.each.mgpu() > 0;
    let may_be = strict.filter(|(name, it)| match asked.is_empty() {
        true => it.terms.is_candidate_for_any(gpus),
        false => asked.contains(name),
    });
    let of_platforms = may_be.map(|(name, _)| RuleSet {
        pool: &pool.name,
        platform: Some((name, asked.is_empty())),
        of: Vec::from([name.clone()]),
    });
    let own = RuleSet {
        pool: &pool.name,
        platform: None,
        of: asked.clone(),
    };
    core::iter::once(own).chain(of_platforms).collect()
}

/// The result of each assertion for a step: those of the pool's documents, then those of its platforms.
pub(crate) fn judged_in(
    ctx: &Context,
    pool: &PoolName,
    request: &Request,
    spec: &StepSpec,
) -> Vec<Check> {
    let Some(pool) = ctx.state().pool(pool) else {
        return Vec::new();
    };
    let step = StepFacts(spec);
    let rule_sets = rule_sets(ctx, pool, request).into_iter();
    let judged = rule_sets.flat_map(|rule_set| {
        let hosts = hosts_for(ctx, pool, &rule_set.of);
        let rules = rules_of(ctx, pool, rule_set.platform()).into_iter();
        rules.map(move |rule| Check::Assertion {
            outcome: outcome(&rule, step, &hosts),
            document: rule.document,
            platform: rule.platform,
            assert: rule.asserted.source.assert,
        })
    });
    judged.collect()
}

/// The assertions of the documents that a pool or a platform of it names. Each was parsed when it was applied.
pub(crate) fn rules_of(
    ctx: &Context,
    pool: &Pool,
    platform: Option<&PlatformName>,
) -> Vec<DocumentAssertion> {
    let named = match platform {
        None => Some(&pool.spec.validations),
        Some(platform) => (pool.platforms.get(platform)).map(|it| &it.terms.validations),
    };
    let named = named.into_iter().flatten();
    let documents = named.filter_map(|name| Some((name, ctx.state().validations().get(name)?)));
    let rules = documents.flat_map(|(name, document)| {
        let read = document.terms.read().unwrap_or_default();
        read.into_iter().map(|asserted| DocumentAssertion {
            document: name.clone(),
            asserted,
            platform: platform.cloned(),
        })
    });
    rules.collect()
}

/// The facts about the hosts of a pool that are of one of these platforms.
pub(crate) fn hosts_for(ctx: &Context, pool: &Pool, of: &[PlatformName]) -> Vec<NodeFacts> {
    let nodes = ctx.state().nodes_of(&pool.name);
    nodes.filter_map(|node| facts(node, pool, of)).collect()
}

pub(crate) fn no_host_keeps(
    ctx: &Context,
    rule_set: &RuleSet<'_>,
    pool: &Pool,
    step: StepFacts<'_>,
    rules: &[DocumentAssertion],
) -> Option<Rejection> {
    // A host that does not know its GPUs yet may pass later.
    let may_pass = |node: &Node| step.0.request.get(MGPU) > 0 && node.inventory.gpus_unknown;
    if rules.is_empty() || ctx.state().nodes_of(&pool.name).any(may_pass) {
        return None;
    }
    let hosts = hosts_for(ctx, pool, &rule_set.of);
    let mut short = Vec::new();
    for node in &hosts {
        let broken = broken_on(rules, step, node);
        if broken.is_empty() {
            return None;
        }
        short.push(HostFailures {
            node: &node.name,
            broken,
        });
    }
    short.sort_by_key(HostFailures::distance);
    no_host_passes(rule_set, &short)
}

impl RuleSet<'_> {
    fn platform(&self) -> Option<&PlatformName> {
        self.platform.map(|(name, _)| name)
    }

    /// Makes the rejection; `rule` is the failed assertion that it names.
    fn rejects(&self, rule: &DocumentAssertion, unkept: FailedAssertion) -> Rejection {
        Rejection::Invalid {
            pool: self.pool.clone(),
            judge: match self.platform {
                None => AssertionSource::Pool,
                Some((name, false)) => AssertionSource::Platform(name.clone()),
                Some((name, true)) => AssertionSource::AnyPlatform(name.clone()),
            },
            validation: rule.document.clone(),
            advice: rule.asserted.source.message.clone(),
            unkept,
        }
    }
}

impl HostFailures<'_> {
    /// The distance of a host: first the number of failed assertions, then how close they are.
    fn distance(&self) -> (usize, u64, String) {
        let gaps = self.broken.iter().map(|(_, failure)| failure.gap);
        (self.broken.len(), gaps.sum(), self.node.to_string())
    }

    fn failing_host(&self) -> FailingHost {
        let broken = self.broken.iter();
        let broken = broken.map(|(rule, failure)| {
            let assert = rule.asserted.source.assert.clone();
            (assert, failure.values.clone())
        });
        FailingHost {
            node: String::from(self.node),
            broken: broken.collect(),
        }
    }
}

/// The rejection because no host passes all assertions, with the nearest hosts. It names the first assertion that the
/// nearest host fails.
fn no_host_passes(rule_set: &RuleSet<'_>, short: &[HostFailures<'_>]) -> Option<Rejection> {
    let (rule, _) = short.first()?.broken.first()?;
    let nearest = short
        .iter()
        .take(MAX_NEAREST_HOSTS)
        .map(HostFailures::failing_host);
    let unkept = FailedAssertion::Hosts {
        asked: short.len() as u64,
        nearest: nearest.collect(),
    };
    Some(rule_set.rejects(rule, unkept))
}

pub(crate) fn failure(verdict: RuleResult) -> Option<RuleFailure> {
    match verdict {
        RuleResult::Holds => None,
        RuleResult::Fails(failure) => Some(failure),
    }
}

pub(crate) fn broken_on<'a>(
    rules: &'a [DocumentAssertion],
    step: StepFacts<'_>,
    node: &NodeFacts,
) -> Vec<(&'a DocumentAssertion, RuleFailure)> {
    let on = StepOnNode { step, node };
    let rules = rules.iter();
    rules
        .filter_map(|rule| Some((rule, failure(rule.asserted.evaluate(&on))?)))
        .collect()
}

pub(crate) fn outcome(
    rule: &DocumentAssertion,
    step: StepFacts<'_>,
    hosts: &[NodeFacts],
) -> AssertionOutcome {
    if rule.asserted.is_inactive(&step) {
        return AssertionOutcome::NotApplicable;
    }
    if !rule.asserted.is_about_hosts() {
        let failure = failure(rule.asserted.evaluate(&step));
        return failure.map_or(AssertionOutcome::Holds, |failure| {
            AssertionOutcome::Fails(failure.values)
        });
    }
    let judged = hosts.iter().map(|node| {
        let on = StepOnNode { step, node };
        (node, failure(rule.asserted.evaluate(&on)))
    });
    let broken: Vec<(&NodeFacts, RuleFailure)> = judged
        .filter_map(|(node, failure)| Some((node, failure?)))
        .collect();
    let keep = hosts.len() - broken.len();
    let nearest = broken.into_iter().min_by_key(|(_, failure)| failure.gap);
    match nearest.filter(|_| keep == 0) {
        Some((node, failure)) => {
            AssertionOutcome::Fails(format!("`{}`: {}", node.name, failure.values))
        }
        None => AssertionOutcome::HoldsOn {
            keep,
            of: hosts.len(),
        },
    }
}

/// The facts about a host; `None` if it is of no wanted platform.
pub(crate) fn facts(node: &Node, pool: &Pool, wanted: &[PlatformName]) -> Option<NodeFacts> {
    let labels = node.labels_in_force();
    let host = node.as_host(&labels);
    let is_wanted = |gpu: Option<&Gpu>| {
        let declared = pool.platforms.iter();
        let declared = declared.map(|(name, platform)| (name, &platform.terms));
        let kinds = || spec::platforms_of(declared.clone(), &host, gpu);
        wanted.is_empty() || wanted.iter().any(|wanted| kinds().contains(wanted))
    };
    let gpus = &node.inventory.gpus;
    let seen: Vec<&Gpu> = gpus.iter().filter(|gpu| is_wanted(Some(gpu))).collect();
    let bare = gpus.is_empty() && is_wanted(None);
    if !wanted.is_empty() && seen.is_empty() && !bare {
        return None;
    }
    let models: BTreeSet<String> = seen
        .iter()
        .map(|gpu| platform::from_slug(&gpu.platform).to_string())
        .collect();
    Some(NodeFacts {
        name: node.name.to_string(),
        memory: node.inventory.memory_bytes,
        storage: node.inventory.storage_bytes,
        mcpu: node.capacity().get(MCPU),
        gpus: seen.len() as u64,
        gpu_memory: seen.iter().map(|gpu| gpu.memory_bytes).min(),
        gpu_models: models.into_iter().collect(),
        arch: node.inventory.arch.clone(),
        labels,
    })
}
