//! Compares two submits under one id.

use sluice_common::pool_rules::Setting;
use sluice_common::request::ResourceSettings;
use sluice_common::step::StepSpec;

/// The first field in which two specs differ, by the name that users write. Computed values (`request`) are not
/// compared, and `cpu_count` is compared as counted: a decimal need not survive being stored to its last bit.
pub(crate) fn first_difference(old: &StepSpec, new: &StepSpec) -> Option<&'static str> {
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
        within,
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
        unset,
        labels,
        cpu_mode,
        mounts,
        privileged,
        host_network,
        // The place where a value was written does not change the request.
        inherited: _,
    } = old;
    // A setting that neither spec sets is the same, whatever their pools have set since.
    let same = |setting: Setting, values_are: bool| {
        values_are || unset.contains(&setting) && new.unset.contains(&setting)
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
        ("within", *within == new.within),
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
        // Last, because a name that was not written follows the command, which is then the real difference.
        ("name", *name == new.name),
    ];
    let different = fields.into_iter().find(|(_, same)| !same);
    different.map(|(field, _)| field)
}

pub(crate) fn same_resources(old: &StepSpec, new: &StepSpec) -> bool {
    // The counted request may contain amounts of templates. A key with amount 0 is not asked for.
    let asked = old.resources.demand();
    let asked = asked.unwrap_or_else(|_| old.request.clone());
    (asked == new.request || old.request == new.request)
        && old.preemptible == new.preemptible
        && without_cores(&old.resources) == without_cores(&new.resources)
}

pub(crate) fn without_cores(resources: &ResourceSettings) -> ResourceSettings {
    ResourceSettings {
        cpu_count: None,
        ..resources.clone()
    }
}
