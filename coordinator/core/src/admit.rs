//! Callers submit steps. What could never be granted is rejected at once, with a reason code and the numbers; what this
//! version does not do is refused by name. A rejected step is stored all the same.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use sluice_common::amount::STEP_RUN;
use sluice_common::id::PoolName;
use sluice_common::nearest::nearest;
use sluice_common::reason::{Reason, ReasonCode};
use sluice_common::request::ResourceSettings;
use sluice_common::step::{OnPreempt, StepSpec};

use crate::core::Core;
use crate::input::{NewStep, ReplyId};
use crate::output::{Answer, Refusal, Submitted};
use crate::record::Record;
use crate::state::{HOST_KEYS, HostUnits, Members, home};

impl Core {
    pub(crate) fn on_submit(&mut self, reply: ReplyId, steps: Vec<NewStep>) {
        let results = steps.into_iter().map(|step| self.submit(step)).collect();
        self.reply(reply, Answer::Submitted(results));
    }

    fn submit(&mut self, new: NewStep) -> Result<Submitted, Refusal> {
        let NewStep { id: step, spec } = new;
        if let Some(old) = self.state.step(&step) {
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
        self.record(match self.admit(&spec) {
            Ok(()) => Record::StepQueued { step, spec },
            Err(reason) => Record::StepRejected { step, spec, reason },
        });
        Ok(Submitted {
            step: id,
            created: true,
        })
    }

    fn admit(&self, spec: &StepSpec) -> Result<(), Reason> {
        let pool = home(spec);
        self.admit_pool(&pool)?;
        admit_features(spec)?;
        admit_keys(spec)?;
        match self.state.index().members(&pool) {
            Some(members) if !spec.allow_pending => admit_size(&pool, members, spec),
            Some(_) | None => Ok(()),
        }
    }

    fn admit_pool(&self, pool: &PoolName) -> Result<(), Reason> {
        if self.state.pool(pool).is_some() {
            return Ok(());
        }
        let message = format!("there is no pool `{pool}`{}", self.did_you_mean(pool));
        Err(Reason::new(ReasonCode::UnknownPool, message).with("pool", pool.as_str()))
    }
}

/// What belongs to later versions, by the name of its field.
fn admit_features(spec: &StepSpec) -> Result<(), Reason> {
    let asked = [
        (
            spec.platform.is_some(),
            "platform",
            "choosing a kind of hardware",
        ),
        (spec.nodes > 1, "nodes", "running on several hosts at once"),
        (
            spec.priority != 0,
            "priority",
            "ordering the steps of one subject",
        ),
        (
            spec.on_preempt == OnPreempt::Suspend,
            "on_preempt",
            "freezing a step that gives way",
        ),
    ];
    match asked.into_iter().find(|(asked, ..)| *asked) {
        None => Ok(()),
        Some((_, field, what)) => {
            let message = format!("{field}: {what} is not supported by this version: leave it out");
            Err(Reason::new(ReasonCode::Unsupported, message).with("field", field))
        }
    }
}

/// Keys that hosts do not count would have to be declared, which this version cannot.
fn admit_keys(spec: &StepSpec) -> Result<(), Reason> {
    let counted = |key: &str| HOST_KEYS.contains(&key) || key == STEP_RUN;
    let mut keys = spec.request.iter();
    let Some((key, asked)) = keys.find(|(key, _)| !counted(key.as_str())) else {
        return Ok(());
    };
    let hint = match nearest(key.as_str(), HOST_KEYS) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are `{}`", HOST_KEYS.join("`, `")),
    };
    let message = format!("no pool counts `{key}`, of which it asks for {asked}: {hint}");
    let reason = Reason::new(ReasonCode::UnknownResource, message);
    Err(reason.with("key", key.as_str()).with("asked", asked))
}

/// Judged by the hosts that the pool remembers, lost ones included: nothing is rejected because a host is down.
fn admit_size(pool: &PoolName, members: &Members, spec: &StepSpec) -> Result<(), Reason> {
    let request = HostUnits::of(&spec.request);
    match members.known.tightest(request) {
        Some(_) => Ok(()),
        None => Err(no_host_fits(pool, members, request)),
    }
}

/// No host that the pool remembers is large enough, with the one that comes closest.
pub(crate) fn no_host_fits(pool: &PoolName, members: &Members, request: HostUnits) -> Reason {
    let reason = |message| Reason::new(ReasonCode::NoHostFits, message).with("pool", pool.as_str());
    let closest = members.known.closest(request);
    let miss = closest.and_then(|(node, has)| Some((node, has.first_shortage(request)?)));
    let Some((node, (key, asked, has))) = miss else {
        return reason(format!("no host of pool `{pool}` is large enough"));
    };
    let message = format!(
        "no host of pool `{pool}` could hold it even when empty: it asks for {asked} {key}, and `{node}`, which comes \
         closest, has {has}"
    );
    reason(message)
        .with("node", node.as_str())
        .with("key", key)
        .with("asked", asked)
        .with("available", has)
}

/// The first field in which two specs differ, by the name that users write. What was computed from other fields
/// (`request`) is not compared beside them, and `cpu_count` is compared as counted: a decimal need not survive being
/// stored to its last bit.
fn first_difference(old: &StepSpec, new: &StepSpec) -> Option<&'static str> {
    let StepSpec {
        name,
        subject,
        pool,
        platform,
        command,
        env,
        workdir,
        resources,
        request,
        preemptible,
        nodes,
        priority,
        retries,
        timeout,
        grace,
        on_preempt,
        allow_pending,
    } = old;
    let same_resources = *request == new.request
        && *preemptible == new.preemptible
        && without_cores(resources) == without_cores(&new.resources);
    let fields = [
        ("subject", *subject == new.subject),
        ("pool", *pool == new.pool),
        ("platform", *platform == new.platform),
        ("command", *command == new.command),
        ("env", *env == new.env),
        ("workdir", *workdir == new.workdir),
        ("resources", same_resources),
        ("nodes", *nodes == new.nodes),
        ("priority", *priority == new.priority),
        ("retries", *retries == new.retries),
        ("timeout", *timeout == new.timeout),
        ("grace_period", *grace == new.grace),
        ("on_preempt", *on_preempt == new.on_preempt),
        ("allow_pending", *allow_pending == new.allow_pending),
        // Last: where it was not written it follows the command, which is what was meant to differ.
        ("name", *name == new.name),
    ];
    let different = fields.into_iter().find(|(_, same)| !same);
    different.map(|(field, _)| field)
}

fn without_cores(resources: &ResourceSettings) -> ResourceSettings {
    ResourceSettings {
        cpu_count: None,
        ..resources.clone()
    }
}
