//! Summarises in one word how well a host isolates steps, by the capabilities that its supervisor reports.

use std::collections::BTreeMap;

use sluice_common::inventory::{Capability, Mechanism};

/// Returns the word: which control groups, or none. `cgroup2+1` if version 1 has what version 2 lacks.
pub(crate) fn word(capabilities: &BTreeMap<Capability, Mechanism>) -> &'static str {
    let has = |mechanism| capabilities.values().any(|how| *how == mechanism);
    match (has(Mechanism::Cgroup2), has(Mechanism::Cgroup1)) {
        (true, true) => "cgroup2+1",
        (true, false) => "cgroup2",
        (false, true) => "cgroup1",
        (false, false) if has(Mechanism::ProcessGroup) => "process groups",
        (false, false) if capabilities.is_empty() => "-",
        (false, false) => "none",
    }
}

/// Returns a sentence for each amount that the host does not enforce; none if that is unknown.
pub(crate) fn not_limited(capabilities: &BTreeMap<Capability, Mechanism>) -> Vec<String> {
    let limits = [
        (Capability::Memory, "memory"),
        (Capability::Cpu, "processor time"),
    ];
    let lacking = limits.iter().filter(|(capability, _)| {
        let how = capabilities.get(capability);
        !capabilities.is_empty() && how.is_none_or(|how| *how == Mechanism::None)
    });
    let sentence = |(capability, what): &(Capability, &str)| {
        format!(
            "{what} is not limited here: a step may use more than it asks for; a pool with `require: [{capability}]` \
             gives this host no new work"
        )
    };
    lacking.map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mechanism::{Cgroup1, Cgroup2, None, ProcessGroup};

    #[test]
    fn the_best_means_name_it_and_both_versions_are_told() {
        for (kill, cpu, expected) in [
            (Cgroup2, Cgroup2, "cgroup2"),
            (Cgroup2, None, "cgroup2"),
            (Cgroup2, Cgroup1, "cgroup2+1"),
            (ProcessGroup, Cgroup1, "cgroup1"),
            (ProcessGroup, None, "process groups"),
            (None, None, "none"),
        ] {
            let host = [(Capability::Kill, kill), (Capability::Cpu, cpu)];
            assert_eq!(word(&host.into()), expected, "{kill} {cpu}");
        }
        assert_eq!(word(&BTreeMap::new()), "-");
    }

    #[test]
    fn what_is_not_limited_is_told_and_nothing_of_what_is_not_known() {
        let mut host = BTreeMap::from([(Capability::Cpu, Cgroup2), (Capability::Memory, None)]);
        assert_eq!(
            not_limited(&host),
            [
                "memory is not limited here: a step may use more than it asks for; a pool with `require: [memory]` gives \
                 this host no new work"
            ]
        );
        host.insert(Capability::Memory, Cgroup1);
        assert_eq!(not_limited(&host), [""; 0]);
        host.remove(&Capability::Cpu);
        assert_eq!(not_limited(&host).len(), 1, "an older agent tells no less");
        assert_eq!(not_limited(&BTreeMap::new()), [""; 0]);
    }
}
