//! Warns if declared and detected values differ: capacity of pools, labels of nodes, with the way out. Declared
//! capacity of a pool caps what its hosts have; labels of admins override those of a config.

use sluice_common::amount::{MCPU, MEMORY_MB, MGPU, ResourceKey, STORAGE_MB};
use sluice_common::api::{NodeView, PoolView};

use super::capacity::{much, named};
use super::safe;

/// Keys that hosts report; others are only declared.
const DETECTED: [&str; 4] = [MGPU, MCPU, MEMORY_MB, STORAGE_MB];

/// Warns if a pool declares more than its hosts have, or less.
pub(crate) fn of_pool(pool: &PoolView) -> Vec<String> {
    // A pool without hosts detects nothing.
    let keys = DETECTED.into_iter();
    let keys = keys.filter(|_| pool.spec.hosts.are_joined());
    keys.filter_map(|key| {
        let declared = pool.declared.iter();
        let (_, declared) = declared
            .clone()
            .find(|(it, _)| ResourceKey::as_str(it) == key)?;
        apart(key, *declared, pool.detected.get(key))
    })
    .collect()
}

fn apart(key: &str, declared: u64, detected: u64) -> Option<String> {
    let by = much(key, declared.abs_diff(detected));
    let what = match declared.cmp(&detected) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => {
            format!("{by} of it is on no host: add hosts, or declare less")
        }
        std::cmp::Ordering::Less => {
            format!("{by} of it is not used: declare more to use it")
        }
    };
    let (declared, detected) = (much(key, declared), much(key, detected));
    Some(format!(
        "{}: {declared} declared, {detected} detected: {what}",
        named(key)
    ))
}

/// Warns if the agent's config names another pool or other labels than are in effect.
pub(crate) fn of_node(node: &NodeView) -> Vec<String> {
    let pool = node.pool_of_config.iter().map(|config| {
        let (pool, config) = (safe(&node.pool), safe(config));
        format!(
            "pool: its config or certificate says {config}, and it is in {pool}, which counts: `pool = \"{pool}\"` in \
             agent.toml makes both say the same, `sluice move node {} --pool {config}` moves it",
            safe(&node.name)
        )
    });
    let labels = node.labels_of_config.iter().map(|(key, config)| {
        let (name, config) = (safe(key), safe(config));
        match node.labels.get(key) {
            Some(label) => {
                let label = safe(label);
                format!(
                    "label {name}: its config says {config}, an admin set {label}, which counts"
                )
            }
            None => format!("label {name}: its config says {config}, an admin removed it"),
        }
    });
    pool.chain(labels).collect()
}

#[cfg(test)]
mod tests {
    use super::super::node::tests::node;
    use super::super::pool::tests::pool;
    use super::*;

    #[test]
    fn a_pool_says_where_it_declares_more_or_less_than_its_hosts_have() {
        let mut pool = pool(1, 1);
        let key = |name: &str| ResourceKey::new(name).unwrap();
        pool.detected = [(key(MGPU), 8000), (key(MCPU), 8000), (key(MEMORY_MB), 1000)]
            .into_iter()
            .collect();
        pool.declared = [
            (key(MGPU), 12_000),
            (key(MCPU), 4500),
            (key(MEMORY_MB), 1000),
            (key("licences"), 3),
        ]
        .into();
        assert_eq!(
            of_pool(&pool),
            [
                "gpu: 12 declared, 8 detected: 4 of it is on no host: add hosts, or declare less",
                "cpu: 4.5 declared, 8 detected: 3.5 of it is not used: declare more to use it",
            ]
        );
        pool.declared.clear();
        assert_eq!(of_pool(&pool), [""; 0]);
    }

    #[test]
    fn a_node_says_what_of_its_config_does_not_count() {
        let mut node = node();
        assert_eq!(of_node(&node), [""; 0]);
        node.pool_of_config = Some("spare".to_owned());
        let config = [("rack", "r1"), ("zone", "b")];
        node.labels_of_config = config.map(|(key, value)| (key.into(), value.into())).into();
        assert_eq!(
            of_node(&node),
            [
                "pool: its config or certificate says spare, and it is in default, which counts: `pool = \"default\"` in \
                 agent.toml makes both say the same, `sluice move node gpu-1 --pool spare` moves it",
                "label rack: its config says r1, an admin removed it",
                "label zone: its config says b, an admin set a, which counts",
            ]
        );
    }
}
