//! Callers submit steps. What could never be granted is rejected at once, with a reason code and the numbers; what this
//! version does not do is refused by name. A rejected step is stored all the same.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::Key;
use sluice_common::id::{PoolName, StepId};
use sluice_common::nearest::nearest;
use sluice_common::quantity::{figure, quantity};
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::request::ResourceSettings;
use sluice_common::rules::Setting;
use sluice_common::step::StepSpec;
use sluice_scheduler::{HOST_KEYS, Never, Pool, Request};

use crate::bounds::over_bounds;
use crate::cluster::home_of;
use crate::context::Context;
use crate::guard::kept_off;
use crate::input::{NewStep, ReplyId};
use crate::link::did_you_mean;
use crate::model::step::Step;
use crate::output::{Answer, Refusal, Submitted};
use crate::patience::await_units;
use crate::platforms::no_host_of_platform;
use crate::record::Record;
use crate::rules::Admitted;
use crate::rules::admit_by_rules;
use crate::state::request;

pub(crate) fn on_submit(ctx: &mut Context, reply: ReplyId, steps: Vec<NewStep>) {
    let over = over_bounds(ctx, &steps);
    let results = steps.into_iter().map(|step| {
        let refusal = over.get(&step.spec.subject);
        match refusal.filter(|_| ctx.state().step(&step.id).is_none()) {
            Some(refusal) => Err(refusal.clone()),
            None => submit(ctx, step),
        }
    });
    let results = results.collect();
    ctx.reply(reply, Answer::Submitted(results));
}

pub(crate) fn submit(ctx: &mut Context, new: NewStep) -> Result<Submitted, Refusal> {
    let NewStep {
        id: step,
        spec,
        past_maintenance,
    } = new;
    if let Some(old) = ctx.state().step(&step) {
        return match first_difference(&old.spec, &spec) {
            None => Ok(Submitted {
                step,
                created: false,
            }),
            Some(field) => Err(Refusal::IdInUse {
                step,
                differs: String::from(field),
            }),
        };
    }
    let id = step.clone();
    ctx.record(match admit(ctx, &step, spec, past_maintenance)? {
        Admitted::Queued {
            spec,
            barred,
            home,
            grounds,
        } => Record::StepQueued {
            step,
            spec,
            barred,
            home,
            grounds,
        },
        Admitted::Rejected { spec, reason } => Record::StepRejected { step, spec, reason },
    });
    await_units(ctx, &id);
    Ok(Submitted {
        step: id,
        created: true,
    })
}

/// Judged by the hosts that a pool remembers, lost ones included: nothing is rejected because a host is down.
fn admit(
    ctx: &Context,
    step: &StepId,
    spec: StepSpec,
    past_maintenance: bool,
) -> Result<Admitted, Refusal> {
    match admit_at_all(ctx, &spec) {
        Ok(()) => {
            let home = home_of(ctx, &spec);
            let request = home.send(Request::of(step.clone(), 0, &spec));
            admit_by_rules(ctx, &request, home, spec, past_maintenance)
        }
        Err(reason) => Ok(Admitted::Rejected { spec, reason }),
    }
}

fn admit_at_all(ctx: &Context, spec: &StepSpec) -> Result<(), Reason> {
    if let Some(pool) = &spec.pool {
        admit_pool(ctx, pool)?;
    }
    Ok(())
}

/// Judged by what is declared, reserved and limited alone: hosts come and go. The rules of pools were looked at when
/// it was submitted.
pub(crate) fn admit_by_terms(ctx: &Context, step: &Step) -> Result<(), Reason> {
    let spec = &step.spec;
    admit_at_all(ctx, spec)?;
    let request = request(step);
    let market = ctx.state().market();
    market
        .admit(&request, true)
        .map_err(|found| never(ctx, &request, found))
}

pub(crate) fn admit_pool(ctx: &Context, pool: &PoolName) -> Result<(), Reason> {
    if ctx.state().pool(pool).is_some() {
        return Ok(());
    }
    let message = format!("there is no pool `{pool}`{}", did_you_mean(ctx, pool));
    Err(Reason::new(ReasonCode::UnknownPool, message).with("pool", pool.as_str()))
}

/// The reason is that of the most preferred pool; the others are listed.
fn never(ctx: &Context, request: &Request, never: Vec<(PoolName, Never)>) -> Reason {
    let never = never.into_iter();
    let reasons = never.map(|(pool, never)| (never_in(ctx, &pool, request, never), pool));
    foremost(reasons).unwrap_or_else(|| no_policy(request))
}

pub(crate) fn never_in(ctx: &Context, pool: &PoolName, request: &Request, never: Never) -> Reason {
    let subject = &request.subject;
    let numbers = |code, key: &Key, asked: u64, has: (&str, u64), message: String| {
        Reason::new(code, message)
            .with("pool", pool.as_str())
            .with("key", key.as_str())
            .with("asked", asked)
            .with(has.0, has.1)
    };
    match never {
        Never::UnknownResource { key } => unknown_resource(pool, request, &key),
        Never::ExceedsPoolCapacity {
            key,
            asked,
            capacity,
        } => {
            let message = format!(
                "it asks for {}, and pool `{pool}` has {}",
                quantity(key.as_str(), asked),
                figure(key.as_str(), capacity)
            );
            let code = ReasonCode::ExceedsPoolCapacity;
            numbers(code, &key, asked, ("capacity", capacity), message)
        }
        Never::ExceedsLimit { key, asked, limit } => {
            let message = format!(
                "it asks for {}, and the limit of `{subject}` in pool `{pool}` is {}",
                quantity(key.as_str(), asked),
                figure(key.as_str(), limit)
            );
            let code = ReasonCode::ExceedsLimit;
            numbers(code, &key, asked, ("limit", limit), message)
        }
        Never::ExceedsReserved {
            key,
            asked,
            reserved,
        } => {
            let message = format!(
                "it is not preemptible and asks for {}, and `{subject}` has {} reserved in pool `{pool}`: ask for \
                 less, or let it be preemptible",
                quantity(key.as_str(), asked),
                figure(key.as_str(), reserved)
            );
            let code = ReasonCode::ExceedsReserved;
            numbers(code, &key, asked, ("reserved", reserved), message)
        }
        Never::NoHostFits { hosts } => no_host_fits(ctx, pool, request, hosts),
    }
}

/// No host that the pool remembers is large enough, with the one that comes closest.
pub(crate) fn no_host_fits(
    ctx: &Context,
    pool: &PoolName,
    request: &Request,
    hosts: usize,
) -> Reason {
    let reason = |message| Reason::new(ReasonCode::NoHostFits, message).with("pool", pool.as_str());
    let known = ctx.state().market().pool(pool);
    let kept_off = known.and_then(|known| kept_off(pool, known, request));
    if hosts > 0 {
        let message = too_few(pool, known, request, hosts);
        let closed = kept_off.map_or_else(String::new, |it| format!("; {it}"));
        return reason(format!("{message}{closed}"))
            .with("key", "nodes")
            .with("asked", u64::from(request.hosts))
            .with("available", hosts as u64);
    }
    if let Some(reason) = no_host_of_platform(ctx, pool, request) {
        return reason;
    }
    if let Some(kept_off) = kept_off {
        return reason(format!("no host of pool `{pool}` lets it in: {kept_off}"));
    }
    let closest = known.and_then(|pool| pool.closest(request));
    let Some((node, key, asked, has)) = closest else {
        return reason(format!("no host of pool `{pool}` is large enough"));
    };
    let message = format!(
        "no host of pool `{pool}` could hold it even when empty: it asks for {}, and `{node}`, which comes closest, \
         has {}",
        quantity(key, asked),
        figure(key, has)
    );
    reason(message)
        .with("node", node.as_str())
        .with("key", key)
        .with("asked", asked)
        .with("available", has)
}

/// So many hosts are large enough, of the platform that has most of them where there are several.
fn too_few(pool: &PoolName, known: Option<&Pool>, request: &Request, hosts: usize) -> String {
    let are = if hosts == 1 { "is" } else { "are" };
    let message = format!(
        "it asks for {} hosts at once, and {hosts} of pool `{pool}` {are} large enough",
        request.hosts
    );
    match known.is_some_and(|known| known.platforms().count() > 1) {
        false => message,
        true => {
            format!("{message} among those of any one platform, which all its hosts must be of")
        }
    }
}

/// The reason of the most preferred pool, with those of the others listed; `None` where there is no pool.
pub(crate) fn foremost(mut reasons: impl Iterator<Item = (Reason, PoolName)>) -> Option<Reason> {
    let (first, _) = reasons.next()?;
    Some(reasons.fold(first, |reason, (other, pool)| {
        reason.with(&format!("in {pool}"), other.message.as_str())
    }))
}

pub(crate) fn no_policy(request: &Request) -> Reason {
    let subject = &request.subject;
    let (place, pool) = match &request.pool {
        Some(pool) => (format!("pool `{pool}`"), pool.as_str()),
        None => (String::from("any pool"), "POOL"),
    };
    let message = format!(
        "`{subject}` has no policy in {place}: whoever leads {} gives it one by `echo '{{kind: policy, pool: {pool}, \
         subject: {subject}}}' | sluice apply -f -`",
        if request.pool.is_some() { "it" } else { "one" }
    );
    let reason = Reason::new(ReasonCode::NoPolicy, message).with("subject", subject.as_str());
    match &request.pool {
        Some(pool) => reason.with("pool", pool.as_str()),
        None => reason,
    }
}

/// Keys that hosts do not count must be declared.
fn unknown_resource(pool: &PoolName, request: &Request, key: &Key) -> Reason {
    let asked = request.demand.get(key.as_str());
    let hint = match nearest(key.as_str(), HOST_KEYS) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "there are `{}`, and what a pool declares",
            HOST_KEYS.join("`, `")
        ),
    };
    let message =
        format!("pool `{pool}` does not count `{key}`, of which it asks for {asked}: {hint}");
    Reason::new(ReasonCode::UnknownResource, message)
        .with("pool", pool.as_str())
        .with("key", key.as_str())
        .with("asked", asked)
}

/// The first field in which two specs differ, by the name that users write. What was computed from other fields
/// (`request`) is not compared beside them, and `cpu_count` is compared as counted: a decimal need not survive being
/// stored to its last bit.
fn first_difference(old: &StepSpec, new: &StepSpec) -> Option<&'static str> {
    let StepSpec {
        name,
        subject,
        submitted_by,
        pool,
        platform,
        command,
        env,
        workdir,
        resources: _,
        request: _,
        preemptible: _,
        nodes,
        priority,
        retries,
        timeout,
        grace,
        on_preempt,
        allow_pending,
        free_preemptions,
        priority_class,
        suspend_timeout,
        work,
        queue_timeout,
        unsaid,
        labels,
        cpu_mode,
        mounts,
        privileged,
        host_network,
        // Where a value was written does not change what is asked for.
        inherited: _,
    } = old;
    // What neither says is the same, whatever their pools have said since.
    let same = |setting: Setting, values_are: bool| {
        values_are || unsaid.contains(&setting) && new.unsaid.contains(&setting)
    };
    let fields = [
        ("subject", *subject == new.subject),
        ("submitted_by", *submitted_by == new.submitted_by),
        ("pool", *pool == new.pool),
        ("platform", *platform == new.platform),
        ("command", *command == new.command),
        ("env", *env == new.env),
        ("workdir", *workdir == new.workdir),
        ("resources", same_resources(old, new)),
        ("nodes", *nodes == new.nodes),
        ("priority", *priority == new.priority),
        ("retries", same(Setting::Retries, *retries == new.retries)),
        ("timeout", same(Setting::Timeout, *timeout == new.timeout)),
        (
            "grace_period",
            same(Setting::GracePeriod, *grace == new.grace),
        ),
        (
            "on_preempt",
            same(Setting::OnPreempt, *on_preempt == new.on_preempt),
        ),
        ("allow_pending", *allow_pending == new.allow_pending),
        (
            "free_preemptions",
            *free_preemptions == new.free_preemptions,
        ),
        ("mounts", *mounts == new.mounts),
        ("privileged", *privileged == new.privileged),
        ("host_network", *host_network == new.host_network),
        ("priority_class", *priority_class == new.priority_class),
        ("work", *work == new.work),
        ("suspend_timeout", *suspend_timeout == new.suspend_timeout),
        (
            "queue_timeout",
            same(Setting::QueueTimeout, *queue_timeout == new.queue_timeout),
        ),
        ("labels", *labels == new.labels),
        (
            "cpu_mode",
            same(Setting::CpuMode, *cpu_mode == new.cpu_mode),
        ),
        // Last: where it was not written it follows the command, which is what was meant to differ.
        ("name", *name == new.name),
    ];
    let different = fields.into_iter().find(|(_, same)| !same);
    different.map(|(field, _)| field)
}

fn same_resources(old: &StepSpec, new: &StepSpec) -> bool {
    // What was counted may hold what templates added. A key that is asked for as nothing is not asked for.
    let asked = old.resources.demand();
    let asked = asked.unwrap_or_else(|_| old.request.clone());
    (asked == new.request || old.request == new.request)
        && old.preemptible == new.preemptible
        && without_cores(&old.resources) == without_cores(&new.resources)
}

fn without_cores(resources: &ResourceSettings) -> ResourceSettings {
    ResourceSettings {
        cpu_count: None,
        ..resources.clone()
    }
}
