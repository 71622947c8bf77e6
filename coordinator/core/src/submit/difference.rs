//! Compares two submits under one id.

use sluice_common::pool_rules::Setting;
use sluice_common::request::ResourceSettings;
use sluice_common::step::StepSpec;
use sluice_common::streams::StepStreams;

/// The first field in which two specs differ, by the name that users write. Computed values (`request`) are not
/// compared, and `cpu_count` is compared as counted: a decimal need not survive being stored to its last bit.
pub(crate) fn first_difference(old: &StepSpec, new: &StepSpec) -> Option<&'static str> {
    let StepSpec {
        name,
        subject,
        submitted_by,
        pool: _,
        platform: _,
        command,
        env,
        workdir: _,
        prefer_workdir: _,
        image: _,
        resources: _,
        request: _,
        preemptible: _,
        nodes: _,
        within: _,
        priority,
        retries: _,
        timeout: _,
        grace: _,
        on_preempt: _,
        allow_pending,
        free_preemptions,
        priority_class,
        suspend_timeout,
        work,
        queue_timeout: _,
        begin: _,
        deadline: _,
        after,
        array,
        unset: _,
        labels: _,
        cpu_mode: _,
        mounts: _,
        privileged: _,
        host_network: _,
        streams,
        inputs: _,
        // Another caller of the same user has uploads of his own.
        inputs_by: _,
        keep: _,
        ports: _,
        probes: _,
        lease: _,
        inside: _,
        // Neither the place of a replica nor that where a value was written changes the request.
        service: _,
        inherited: _,
    } = old;
    let same_preemptions = *free_preemptions == new.free_preemptions;
    let fields = [
        ("subject", *subject == new.subject),
        ("submitted_by", *submitted_by == new.submitted_by),
        ("command", *command == new.command),
        ("env", *env == new.env),
        ("resources", same_resources(old, new)),
        ("priority", *priority == new.priority),
        ("allow_pending", *allow_pending == new.allow_pending),
        ("free_preemptions", same_preemptions),
        ("priority_class", *priority_class == new.priority_class),
        ("work", *work == new.work),
        ("suspend_timeout", *suspend_timeout == new.suspend_timeout),
        ("after", *after == new.after),
        ("array", *array == new.array),
    ];
    // Last, because a name that was not written follows the command, which is then the real difference.
    let name = ("name", *name == new.name);
    let fields = fields.into_iter().chain(place_fields(old, new));
    let fields = fields.chain(stream_fields(streams, &new.streams));
    let fields = fields.chain(surroundings(old, new));
    let mut fields = fields.chain(settings(old, new)).chain([name]);
    fields.find(|(_, same)| !same).map(|(field, _)| field)
}

/// The fields that say where a step runs, and whether they are the same. Inside an allocation, they are those of the
/// allocation, and so is the number of hosts that a step leaves open.
fn place_fields(old: &StepSpec, new: &StepSpec) -> [(&'static str, bool); 5] {
    let is_inside = old.inside.is_some() && old.inside == new.inside;
    let same_nodes = old.nodes == new.nodes || is_inside && new.nodes == 0;
    [
        ("inside", old.inside == new.inside),
        ("pool", is_inside || old.pool == new.pool),
        ("platform", is_inside || old.platform == new.platform),
        ("nodes", same_nodes),
        ("within", old.within == new.within),
    ]
}

/// The labels and the fields of the surroundings in which the program runs, and whether they are the same.
fn surroundings(old: &StepSpec, new: &StepSpec) -> [(&'static str, bool); 14] {
    [
        ("labels", old.labels == new.labels),
        ("mounts", old.mounts == new.mounts),
        ("privileged", old.privileged == new.privileged),
        ("host_network", old.host_network == new.host_network),
        ("inputs", old.inputs == new.inputs),
        ("keep", old.keep == new.keep),
        ("ports", old.ports == new.ports),
        ("probes", old.probes == new.probes),
        ("lease", old.lease == new.lease),
        ("begin", old.begin == new.begin),
        ("deadline", old.deadline == new.deadline),
        ("image", old.image == new.image),
        ("workdir", old.workdir == new.workdir),
        ("prefer_workdir", old.prefer_workdir == new.prefer_workdir),
    ]
}

/// The fields of the streams, and whether they are the same.
fn stream_fields(old: &StepStreams, new: &StepStreams) -> [(&'static str, bool); 5] {
    [
        ("stdin", old.stdin == new.stdin),
        ("stdout", old.stdout == new.stdout),
        ("stderr", old.stderr == new.stderr),
        ("append", old.append == new.append),
        ("terminal", old.terminal == new.terminal),
    ]
}

/// The settings that a pool can fill in, and whether they are the same: one that neither spec sets is, whatever their pools
/// have set since.
fn settings(old: &StepSpec, new: &StepSpec) -> [(&'static str, bool); 6] {
    let same = |setting: Setting, values_are: bool| {
        values_are || old.unset.contains(&setting) && new.unset.contains(&setting)
    };
    [
        (
            "retries",
            same(Setting::Retries, old.retries == new.retries),
        ),
        (
            "timeout",
            same(Setting::Timeout, old.timeout == new.timeout),
        ),
        (
            "grace_period",
            same(Setting::GracePeriod, old.grace == new.grace),
        ),
        (
            "on_preempt",
            same(Setting::OnPreempt, old.on_preempt == new.on_preempt),
        ),
        (
            "queue_timeout",
            same(
                Setting::QueueTimeout,
                old.queue_timeout == new.queue_timeout,
            ),
        ),
        (
            "cpu_mode",
            same(Setting::CpuMode, old.cpu_mode == new.cpu_mode),
        ),
    ]
}

pub(crate) fn same_resources(old: &StepSpec, new: &StepSpec) -> bool {
    // The counted request may contain amounts of templates. A key with amount 0 is not asked for.
    let asked = old.resources.demand();
    let asked = asked.unwrap_or_else(|_| old.request.clone());
    (asked == new.request || old.request == new.request)
        && (old.preemptible == new.preemptible || old.inside.is_some())
        && without_cores(&old.resources) == without_cores(&new.resources)
}

pub(crate) fn without_cores(resources: &ResourceSettings) -> ResourceSettings {
    ResourceSettings {
        cpu_count: None,
        ..resources.clone()
    }
}
