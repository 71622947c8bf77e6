//! Applies, scales, rolls back and deletes services on request. What follows from it is done by `services/`.

use alloc::boxed::Box;
use alloc::format;

use sluice_common::id::ServiceName;
use sluice_common::service::{MAX_SERVICES, ServiceSpec};

use crate::context::Context;
use crate::input::{ReplyId, ServiceChange, ServiceReport};
use crate::model::service::Service;
use crate::output::{Answer, Refusal};
use crate::record::{self, Record};
use crate::submit::difference::first_difference;

pub(crate) fn on_change_service(
    ctx: &mut Context,
    reply: ReplyId,
    name: &ServiceName,
    change: ServiceChange,
    version: Option<u64>,
) {
    let done = check_version(ctx, name, version).and_then(|()| match change {
        ServiceChange::Put(spec) => put(ctx, name, spec),
        ServiceChange::Scale(count) => scale(ctx, name, count),
        ServiceChange::Undo(revision) => undo(ctx, name, revision),
        ServiceChange::Delete => delete(ctx, name),
    });
    ctx.reply(reply, Answer::Changed(done));
}

/// Takes what a reporter counts.
pub(crate) fn on_report_load(ctx: &mut Context, reply: ReplyId, report: ServiceReport) {
    let ServiceReport {
        service,
        reporter,
        load,
    } = report;
    let now = ctx.now();
    let done = known(ctx, &service).map(|_| ());
    if done.is_ok() {
        let loads = ctx.service_loads_mut(&service);
        loads.report(reporter, load, now);
        ctx.set_service_due(service);
    }
    ctx.reply(reply, Answer::Changed(done));
}

fn check_version(ctx: &Context, name: &ServiceName, expected: Option<u64>) -> Result<(), Refusal> {
    let version = ctx.state().services().get(name).map_or(0, |it| it.version);
    match expected.filter(|expected| *expected != version) {
        None => Ok(()),
        Some(expected) => Err(Refusal::VersionConflict {
            what: format!("service `{name}`"),
            expected,
            version,
        }),
    }
}

/// The service, unless it was deleted.
fn known<'a>(ctx: &'a Context, name: &ServiceName) -> Result<&'a Service, Refusal> {
    let service = name.clone();
    match ctx.state().services().get(name) {
        None => Err(Refusal::UnknownService { service }),
        Some(known) if known.deleting_since.is_some() => Err(Refusal::ServiceDeleting { service }),
        Some(known) => Ok(known),
    }
}

/// Whether a service would change if this were applied, and whether its replicas would; `None` if there is no such service.
pub(crate) fn foresee(
    ctx: &Context,
    name: &ServiceName,
    spec: &ServiceSpec,
) -> Result<Option<(bool, bool)>, Refusal> {
    let before = match known(ctx, name) {
        Err(Refusal::UnknownService { .. }) => return check_bound(ctx, spec).map(|()| None),
        known => known?,
    };
    let subject = before.subject().filter(|it| **it != spec.replica.subject);
    if let Some(subject) = subject.cloned() {
        let service = name.clone();
        return Err(Refusal::ServiceSubject { service, subject });
    }
    let replica = before.replica();
    let new_replica = replica.is_none_or(|it| first_difference(it, &spec.replica).is_some());
    let same = before.scale == spec.scale
        && before.rollout_spec == spec.rollout
        && before.placement == spec.placement;
    Ok(Some((new_replica || !same, new_replica)))
}

fn put(ctx: &mut Context, name: &ServiceName, spec: Box<ServiceSpec>) -> Result<(), Refusal> {
    let known = ctx.state().services().get(name);
    let (revision, forgets) = match (foresee(ctx, name, &spec)?, known) {
        (Some((false, _)), _) => return Ok(()),
        (Some((true, false)), Some(before)) => (before.revision, None),
        (_, Some(before)) => (before.next_revision(), before.revision_to_forget()),
        (_, None) => {
            let retired = ctx.state().retired_service(name);
            (retired.map_or(1, |retired| retired.next_revision), None)
        }
    };
    if known.is_some_and(|before| before.scale.metric != spec.scale.metric) {
        ctx.service_loads_mut(name).forget_used();
    }
    ctx.record(service_put(name, revision, *spec, forgets));
    Ok(())
}

fn service_put(
    name: &ServiceName,
    revision: u32,
    spec: ServiceSpec,
    forgets: Option<u32>,
) -> Record {
    Record::ServicePut(Box::new(record::ServicePut {
        service: name.clone(),
        revision,
        spec,
        rolled_back: None,
        forgets,
    }))
}

fn check_bound(ctx: &Context, spec: &ServiceSpec) -> Result<(), Refusal> {
    let subject = &spec.replica.subject;
    let services = ctx.state().services().values();
    let own = services.filter(|service| service.subject() == Some(subject));
    if own.count() < MAX_SERVICES {
        return Ok(());
    }
    Err(Refusal::TooManyServices {
        subject: subject.clone(),
        limit: MAX_SERVICES,
    })
}

fn scale(ctx: &mut Context, name: &ServiceName, count: u32) -> Result<(), Refusal> {
    let service = known(ctx, name)?;
    let (min, max) = (service.scale.min, service.scale.max);
    if !service.scale.fixed && !(min..=max).contains(&count) {
        return Err(Refusal::ScaleOutOfRange {
            service: name.clone(),
            count,
            min,
            max,
        });
    }
    if service.count != count {
        ctx.record(Record::ServiceScaled(record::ServiceScale {
            service: name.clone(),
            count,
            load: None,
        }));
    }
    Ok(())
}

/// Goes back to a version, or to the last one that differs from the present one.
fn undo(ctx: &mut Context, name: &ServiceName, wanted: Option<u32>) -> Result<(), Refusal> {
    let service = known(ctx, name)?;
    let differs = |revision: &u32| {
        let specs = service.revisions.get(revision).zip(service.replica());
        specs.is_some_and(|(it, present)| first_difference(&it.spec, present).is_some())
    };
    // One that was rolled back did not become ready.
    let failed = service.rollout.rolled_back.as_ref().map(|it| it.revision);
    let before = || {
        let mut known = service.revisions.keys().rev();
        known
            .find(|it| differs(it) && failed != Some(**it))
            .copied()
    };
    let to = wanted.or_else(before);
    let found = to
        .and_then(|to| service.revisions.get(&to))
        .zip(service.spec());
    let Some((found, spec)) = found else {
        return Err(Refusal::UnknownRevision {
            service: name.clone(),
            revision: wanted,
            known: service.revisions.keys().copied().collect(),
        });
    };
    if to.is_some_and(|to| to != service.revision && differs(&to)) {
        let spec = ServiceSpec {
            replica: found.spec.clone(),
            ..spec
        };
        let forgets = service.revision_to_forget();
        let revision = service.next_revision();
        ctx.record(service_put(name, revision, spec, forgets));
    }
    Ok(())
}

/// Deletes a service: its replicas are drained and stopped, and then it is gone.
fn delete(ctx: &mut Context, name: &ServiceName) -> Result<(), Refusal> {
    match known(ctx, name) {
        Ok(_) => ctx.record(Record::ServiceDeleting {
            service: name.clone(),
        }),
        Err(Refusal::ServiceDeleting { .. }) => {}
        Err(refusal) => return Err(refusal),
    }
    Ok(())
}
