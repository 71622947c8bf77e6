//! Collects the template layers of a step and merges them.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use sluice_common::id::{PlatformName, PoolName};
use sluice_common::limit::MAX_SPEC_BYTES;
use sluice_common::reason::ReasonCode;
use sluice_common::step::StepSpec;
use sluice_common::template::check::TemplateViolation;
use sluice_common::template::origin::{MergedTemplate, Origin};
use sluice_common::template::variable::Variable;
use sluice_reasons::rejection::TAINT;
use sluice_scheduler::{Guard, Request};

use crate::context::Context;
use crate::guard::Permission;
use crate::model::pool::Pool;
use crate::model::template::Provenance;
use crate::state::State;

/// The template layers of a pool under a step.
pub(crate) struct Layers {
    /// The merge for hardware that no platform overrides.
    pool: MergedTemplate,
    /// The merges of platforms that override something and that the step may be granted.
    platforms: Vec<(PlatformName, MergedTemplate)>,
    /// The merges of the other platforms that override something. The step may run on their hosts too: a host may be
    /// of several platforms, and a step without GPUs that names none runs on hosts of any kind.
    others: Vec<(PlatformName, MergedTemplate)>,
    /// The platforms that the step asks for there, most preferred first; empty if it takes any.
    asked: Vec<PlatformName>,
}

impl State {
    /// The platforms that a request asks for in a pool, or gets there because it names none.
    pub(crate) fn asked_in(&self, pool: &PoolName, request: &Request) -> Vec<PlatformName> {
        let known = self.scheduler().pool(pool);
        known.map_or_else(Vec::new, |known| known.wanted(request).to_vec())
    }

    /// The layers of a pool under a step that is submitted now.
    pub(crate) fn layers_of(&self, pool: &Pool, request: &Request) -> Layers {
        let mut merged = MergedTemplate::default();
        for name in &pool.spec.templates {
            if let Some(stored) = self.templates().get(name) {
                let origin = Origin::Template {
                    pool: pool.name.clone(),
                    template: name.clone(),
                };
                merged.put(&stored.template, &origin);
            }
        }
        let asked = self.asked_in(&pool.name, request);
        // A step that does not set GPUs gets those of the templates.
        let below = merged.template.resources.gpu_count.unwrap_or(0);
        let gpus = request.each.mgpu().max(below) > 0;
        let overriding = pool.platforms.iter().filter_map(|(name, platform)| {
            let template = platform.terms.overrides.as_ref()?;
            let origin = Origin::Override {
                pool: pool.name.clone(),
                platform: name.clone(),
            };
            let mut merged = merged.clone();
            merged.put(template, &origin);
            Some((name.clone(), merged))
        });
        let may_be_granted = |(name, _): &(PlatformName, MergedTemplate)| match asked.is_empty() {
            true => pool
                .platforms
                .get(name)
                .is_some_and(|it| it.terms.is_candidate_for_any(gpus)),
            false => asked.contains(name),
        };
        let (platforms, others): (Vec<_>, Vec<_>) = overriding.partition(may_be_granted);
        Layers {
            platforms,
            others,
            pool: merged,
            asked,
        }
    }
}

impl Layers {
    /// The merge for the preferred hardware; if the step takes any, nothing is overridden.
    pub(crate) fn first(&self) -> &MergedTemplate {
        let overridden = self
            .asked
            .first()
            .and_then(|first| self.platforms.iter().find(|(name, _)| name == first));
        overridden.map_or(&self.pool, |(_, merged)| merged)
    }

    /// The merges for all hardware that the step may be granted.
    fn all(&self) -> impl Iterator<Item = (Option<&PlatformName>, &MergedTemplate)> {
        let overridden = self.platforms.iter();
        let overridden = overridden.map(|(name, merged)| (Some(name), merged));
        // Nothing else is left if each requested platform overrides something.
        let every = |name: &PlatformName| self.platforms.iter().any(|(it, _)| it == name);
        let rest = self.asked.is_empty() || !self.asked.iter().all(every);
        rest.then_some((None, &self.pool))
            .into_iter()
            .chain(overridden)
    }

    /// The first field of a step that the layers forbid, wherever it may be granted.
    pub(crate) fn forbid(&self, pool: &PoolName, spec: &StepSpec) -> Option<TemplateViolation> {
        let known = known_of(pool, spec);
        let granted = self.all().find_map(|(platform, merged)| {
            let found = merged.template.violation(spec, &known);
            let found = found.or_else(|| too_large(merged, spec))?;
            let message = match platform {
                Some(platform) => format!("{} on platform `{platform}`", found.message),
                None => found.message,
            };
            Some(TemplateViolation { message, ..found })
        });
        granted.or_else(|| self.forbid_by_host(spec, &known))
    }

    /// The first field that a host's platforms forbid. They forbid it for every step that runs there, not only for
    /// those that ask for the platform. A step that names a platform is kept off those hosts by its guard instead.
    fn forbid_by_host(
        &self,
        spec: &StepSpec,
        known: impl Fn(Variable) -> Option<String>,
    ) -> Option<TemplateViolation> {
        let mut others = self.others.iter().filter(|_| self.asked.is_empty());
        others.find_map(|(platform, merged)| {
            let found = merged.template.violation(spec, &known)?;
            let message = format!(
                "{} on hosts of platform `{platform}`, where it may run because it names no platform: name one that \
                 allows it",
                found.message
            );
            Some(TemplateViolation { message, ..found })
        })
    }

    /// Denials of the pool's platforms to an accepted step, which is kept off hosts of such hardware: a permission, or to
    /// run there without naming the platform.
    pub(crate) fn guard(&self, pool: &Pool, spec: &StepSpec) -> Guard {
        let mut guard = Guard::default();
        let tainted = pool.platforms.iter().filter(|(_, it)| it.terms.taint);
        for (platform, _) in tainted.filter(|(name, _)| !self.asked.contains(name)) {
            guard.forbid(platform, String::from(TAINT));
        }
        let overriding = || self.platforms.iter().chain(&self.others);
        for permission in Permission::ALL {
            let says = |(name, _): &&(PlatformName, MergedTemplate)| {
                let platform = pool.platforms.get(name);
                let own = platform.and_then(|it| it.terms.overrides.as_deref());
                own.is_some_and(|own| permission.is_said_by(own))
            };
            // The templates under the step are those of its granted platform, and the permissions are those of all
            // platforms of the host.
            let forbidden = |other: &MergedTemplate| {
                self.all().find_map(|(_, merged)| {
                    let judged = permission.taken_from(&other.template, &merged.template);
                    judged.violation(spec, known_of(&pool.name, spec))
                })
            };
            let saying: Vec<_> = overriding().filter(says).collect();
            if saying.is_empty() {
                // Then all hosts are as the pool is, which accepts it.
                continue;
            }
            let judged = saying.into_iter();
            let judged = judged.map(|(name, merged)| (name, forbidden(merged)));
            let (forbid, allow): (Vec<_>, Vec<_>) = judged.partition(|(_, found)| found.is_some());
            for (platform, found) in forbid {
                found
                    .into_iter()
                    .for_each(|it| guard.forbid(platform, it.field));
            }
            if let Some(found) = forbidden(&self.pool) {
                let allow = allow.into_iter().map(|(platform, _)| platform.clone());
                guard.allow_only(found.field, allow.collect());
            }
        }
        guard
    }
}

/// The variables that are known before there is a host: whether something may be mounted depends on no others.
pub(crate) fn known_of(pool: &PoolName, spec: &StepSpec) -> impl Fn(Variable) -> Option<String> {
    move |variable| {
        let subject = (variable == Variable::Subject).then(|| spec.subject.to_string());
        subject.or_else(|| (variable == Variable::Pool).then(|| pool.to_string()))
    }
}

pub(crate) fn too_large(merged: &MergedTemplate, spec: &StepSpec) -> Option<TemplateViolation> {
    if merged.template.is_empty() {
        return None;
    }
    let own = spec.command.iter().map(String::len).sum::<usize>()
        + spec
            .env
            .iter()
            .map(|(k, v)| k.len() + v.len())
            .sum::<usize>();
    let bytes = own + merged.template.launch(spec, |_| None).bytes();
    (bytes > MAX_SPEC_BYTES).then(|| TemplateViolation {
        code: ReasonCode::MergeTooLarge,
        field: String::from("command"),
        message: format!(
            "with what templates add, its command and environment take {bytes} bytes, and the maximum is {MAX_SPEC_BYTES}"
        ),
    })
}

/// The step with the amounts of these layers.
pub(crate) fn over_templates<'a>(merged: &MergedTemplate, spec: &'a StepSpec) -> Cow<'a, StepSpec> {
    let below = &merged.template.resources;
    if below.is_empty() || spec.inside.is_some() {
        return Cow::Borrowed(spec);
    }
    // The stored and the submitted amounts were each checked.
    match below.fill_unset(&spec.resources).demand() {
        Ok(request) => Cow::Owned(StepSpec {
            request,
            ..spec.clone()
        }),
        Err(_) => Cow::Borrowed(spec),
    }
}

/// The templates under a step in each of these pools, the preferred one first.
pub(crate) fn provenance_of<'a>(
    ctx: &Context,
    request: &Request,
    spec: &StepSpec,
    pools: impl Iterator<Item = &'a Pool>,
) -> Provenance {
    let mut provenance = Provenance::default();
    for pool in pools {
        let layers = ctx.state().layers_of(pool, request);
        let guard = layers.guard(pool, spec);
        if !guard.is_empty() {
            provenance.guards.insert(pool.name.clone(), guard);
        }
        if !layers.pool.template.is_empty() {
            provenance.put(&pool.name, None, layers.pool);
        }
        for (platform, merged) in layers.platforms {
            provenance.put(&pool.name, Some(platform), merged);
        }
    }
    provenance
}
