//! The cluster that a trace runs on: hosts from `--hosts` or the policies file, pools and policies from that file or,
//! without one, a pool that is open to everybody.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use coordinator_core::market::{Policy, PoolTerms};
use coordinator_core::simulation::{HostSize, Simulation};
use sluice_common::amount::{Amounts, GPU, MCPU, MEMORY_MB, STORAGE_MB};
use sluice_common::id::{NodeName, PoolName, Subject};
use sluice_common::inventory::Capability;
use sluice_common::time::{Span, Time};

use super::csv::{Row, Sheet};
use super::trace::megabytes;
use crate::documents::{self, Document};
use crate::failure::Failure;

/// Hosts of one shape at most, so that a slip does not fill the memory.
const MOST_HOSTS: usize = 100_000;
const OPENB: [&str; 4] = ["sn", "cpu_milli", "memory_mib", "gpu"];
/// The pool where no file declares any.
const DEFAULT_POOL: &str = "default";

/// A host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    name: NodeName,
    /// `None`: the one that there is.
    pool: Option<PoolName>,
    size: HostSize,
}

/// Pools, policies and hosts, as they were written.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pools: Vec<(PoolName, PoolTerms)>,
    policies: Vec<(PoolName, Subject, Policy)>,
    hosts: Vec<Host>,
    /// What was written of pools and has no part here.
    not_played: Vec<String>,
}

/// Rules over what is submitted. A job of a trace came once whatever a pool's rules say now, says nothing of its own, and
/// ran for as long as it did.
const NOT_PLAYED: [&str; 5] = [
    "maintenance",
    "defaults",
    "max",
    "on_preempt_allowed",
    "validations",
];

/// Whether a field that may be left out says anything.
fn says(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Null => false,
        serde_json::Value::Object(fields) => fields.values().any(says),
        serde_json::Value::Array(items) => !items.is_empty(),
        serde_json::Value::String(text) => !text.is_empty(),
        serde_json::Value::Bool(_) | serde_json::Value::Number(_) => true,
    }
}

impl Cluster {
    /// Reads what was typed.
    pub(super) fn read(hosts: &[String], policies: Option<&Path>) -> Result<Self, Failure> {
        let mut cluster = Self::default();
        if let Some(path) = policies {
            cluster.read_documents(path)?;
        }
        if !hosts.is_empty() {
            cluster.hosts.clear();
        }
        for hosts in hosts {
            let more = read_hosts(hosts, cluster.hosts.len())?;
            cluster.hosts.extend(more);
        }
        if cluster.hosts.is_empty() {
            let way_out = "write --hosts with a CSV file or a shape such as 64x8";
            return Err(Failure::Usage(format!("there are no hosts: {way_out}")));
        }
        Ok(cluster)
    }

    fn read_documents(&mut self, path: &Path) -> Result<(), Failure> {
        let file = path.display().to_string();
        let wrong = |why: String| Failure::Usage(format!("{file}: {why}"));
        let text = fs::read_to_string(path).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        for document in documents::read(&text, &file)? {
            match document {
                Document::Pool(name, request) => {
                    let said = serde_json::to_value(&request).unwrap_or_default();
                    let not_played: Vec<&str> = NOT_PLAYED
                        .into_iter()
                        .filter(|field| says(&said[*field]))
                        .collect();
                    if !not_played.is_empty() {
                        let fields = not_played.join("`, `");
                        self.not_played.push(format!("`{fields}` of pool `{name}`"));
                    }
                    let spare = request.min_runtime.as_deref().map(str::parse::<Span>);
                    let spare = spare.transpose().map_err(|e| wrong(e.to_string()))?;
                    // A host on paper can do all that is required; what is no capability is a mistake on paper too.
                    let required = request.require.iter();
                    let required: Result<Vec<Capability>, _> =
                        required.map(|it| it.parse()).collect();
                    required.map_err(|e| wrong(format!("require: {e}")))?;
                    let terms = PoolTerms {
                        declared: request.capacity,
                        min_runtime: spare.unwrap_or_default(),
                        ..PoolTerms::default()
                    };
                    self.pools.push((name, terms));
                }
                Document::Policy(pool, subject, request) => {
                    let policy = Policy {
                        priority: request.priority,
                        reserved: request.reserved,
                        limit: request.limit,
                    };
                    self.policies.push((pool, subject, policy));
                }
                Document::Host(request) => {
                    let (name, pool, has) = request.capacity().map_err(wrong)?;
                    let (pool, size) = (Some(pool), size_of(&has));
                    self.hosts.push(Host { name, pool, size });
                }
                Document::Cluster(_) => {
                    let why = "jobs say where they run: leave the document of kind `cluster` out";
                    return Err(wrong(why.to_owned()));
                }
                Document::Validation(..) => {
                    let why =
                        "jobs are not validated on paper: leave documents of kind `validation` out";
                    return Err(wrong(why.to_owned()));
                }
                Document::Platform(..) => {
                    let why = "hosts on paper have no more to tell than their model: leave the documents of kind \
                               `platform` out";
                    return Err(wrong(why.to_owned()));
                }
                Document::Template(..) => {
                    let why =
                        "jobs say what they ask for: leave the document of kind `template` out";
                    return Err(wrong(why.to_owned()));
                }
                Document::Role(..) | Document::Binding(..) => {
                    let why = "nobody calls on paper: leave roles and bindings out";
                    return Err(wrong(why.to_owned()));
                }
                Document::Step(_) => {
                    return Err(wrong("steps come from --jobs: leave them out".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// What was written and has no part in a simulation, in a sentence.
    pub(super) fn note(&self) -> Option<String> {
        let fields = self.not_played.join(", ");
        let says = format!("rules over what is submitted are not played: {fields}");
        (!self.not_played.is_empty()).then_some(says)
    }

    /// How many hosts there are.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// All GPUs.
    pub(super) fn gpus(&self) -> u64 {
        self.hosts.iter().map(|host| host.size.gpus).sum()
    }

    /// The most GPUs that one host has.
    pub(super) fn gpus_of_largest(&self) -> u64 {
        let gpus = self.hosts.iter().map(|host| host.size.gpus);
        gpus.max().unwrap_or(0)
    }

    /// The cluster on paper. Without policies, each of `subjects` may use all of it.
    pub(super) fn build(mut self, subjects: BTreeSet<&Subject>) -> Result<Simulation, Failure> {
        if self.pools.is_empty() {
            let name = PoolName::new(DEFAULT_POOL).expect("the constant is a well-formed name");
            self.pools.push((name, PoolTerms::default()));
        }
        if self.policies.is_empty() {
            let all = subjects.into_iter().flat_map(|subject| {
                let pools = self.pools.iter();
                pools.map(|(pool, _)| (pool.clone(), subject.clone(), Policy::default()))
            });
            self.policies = all.collect();
        }
        let mut simulation = Simulation::new(Time::default());
        let only = match &self.pools[..] {
            [(only, _)] => Some(only.clone()),
            _ => None,
        };
        for (name, terms) in self.pools {
            simulation.put_pool(&name, terms);
        }
        for host in self.hosts {
            let pool = host.pool.or_else(|| only.clone()).ok_or_else(in_which)?;
            let put = simulation.put_host(&host.name, &pool, host.size);
            put.map_err(|e| Failure::Usage(format!("host `{}`: {e}", host.name)))?;
        }
        for (pool, subject, policy) in self.policies {
            let wrong = |why| format!("policy of `{subject}` in pool `{pool}`: {why}");
            let put = simulation.put_policy(&pool, &subject, policy);
            let put = put.map_err(|e| Failure::Usage(wrong(e.to_string())))?;
            put.map_err(|e| Failure::Usage(wrong(e.to_string())))?;
        }
        Ok(simulation)
    }
}

fn in_which() -> Failure {
    Failure::Usage(
        "--hosts: there are several pools: write which, as in --hosts POOL=64x8, or give the file a column `pool`"
            .to_owned(),
    )
}

fn size_of(has: &Amounts) -> HostSize {
    HostSize {
        gpus: has.get(GPU),
        mcpu: Some(has.get(MCPU)),
        memory_mb: Some(has.get(MEMORY_MB)),
        storage_mb: Some(has.get(STORAGE_MB)),
    }
}

/// Hosts of a CSV file, or of a shape such as `64x8` or `training=64x8`; `before` of them are there already.
fn read_hosts(text: &str, before: usize) -> Result<Vec<Host>, Failure> {
    match shape(text) {
        Some((pool, count, gpus)) => made(pool, count, gpus, before),
        None => listed(&PathBuf::from(text)),
    }
}

fn shape(text: &str) -> Option<(Option<&str>, usize, u64)> {
    let (pool, shape) = match text.split_once('=') {
        Some((pool, shape)) => (Some(pool), shape),
        None => (None, text),
    };
    let (count, gpus) = shape.split_once('x')?;
    Some((pool, count.parse().ok()?, gpus.parse().ok()?))
}

fn made(pool: Option<&str>, count: usize, gpus: u64, before: usize) -> Result<Vec<Host>, Failure> {
    if count > MOST_HOSTS {
        return Err(Failure::Usage(format!(
            "--hosts: {count} hosts are more than {MOST_HOSTS}"
        )));
    }
    let pool = pool.map(PoolName::new).transpose();
    let pool = pool.map_err(|e| Failure::Usage(format!("--hosts: {e}")))?;
    let names = (before + 1..).take(count).map(|n| format!("h{n:04}"));
    let hosts = names.map(|name| Host {
        name: NodeName::new(name).expect("a letter and digits are a well-formed name"),
        pool: pool.clone(),
        size: HostSize {
            gpus,
            ..HostSize::default()
        },
    });
    Ok(hosts.collect())
}

fn listed(path: &Path) -> Result<Vec<Host>, Failure> {
    let sheet = Sheet::read(path)?;
    if !sheet.has(&OPENB) {
        return Err(Failure::Usage(format!(
            "{}: its header `{}` is of no list of hosts: write `{},model`, or a shape such as --hosts 64x8",
            sheet.file(),
            sheet.header().escape_debug(),
            OPENB.join(",")
        )));
    }
    sheet.each(host)
}

fn host(row: Row<'_>) -> Result<Host, String> {
    let name = NodeName::new(row.text("sn")).map_err(|e| row.wrong("sn", e))?;
    let pool = Some(row.text("pool")).filter(|pool| !pool.is_empty());
    let pool = pool.map(PoolName::new).transpose();
    Ok(Host {
        name,
        pool: pool.map_err(|e| row.wrong("pool", e))?,
        size: HostSize {
            gpus: row.number("gpu")?,
            mcpu: Some(row.number("cpu_milli")?),
            memory_mb: Some(megabytes(row.number("memory_mib")?)),
            storage_mb: None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_told_from_files() {
        assert_eq!(shape("64x8"), Some((None, 64, 8)));
        assert_eq!(shape("training=2x4"), Some((Some("training"), 2, 4)));
        assert_eq!(shape("boxes.csv"), None);
        let hosts = read_hosts("2x4", 3).unwrap();
        let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["h0004", "h0005"]);
    }

    #[test]
    fn rules_that_are_not_played_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.yaml");
        let text =
            "kind: pool\nname: a\nmaintenance: fans\nmax: {retries: 1}\n---\nkind: pool\nname: b\n";
        fs::write(&path, text).unwrap();
        let cluster = Cluster::read(&["a=2x4".to_owned()], Some(&path)).unwrap();
        assert_eq!(
            cluster.note().unwrap(),
            "rules over what is submitted are not played: `maintenance`, `max` of pool `a`"
        );
        fs::write(&path, "kind: pool\nname: b\n").unwrap();
        let cluster = Cluster::read(&["2x4".to_owned()], Some(&path)).unwrap();
        assert_eq!(cluster.note(), None);
    }

    #[test]
    fn hosts_of_several_pools_say_in_which_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.yaml");
        let text = "kind: pool\nname: a\n---\nkind: pool\nname: b\n---\nkind: policy\npool: a\nsubject: s\n";
        fs::write(&path, text).unwrap();
        let read = |hosts: &str| Cluster::read(&[hosts.to_owned()], Some(&path)).unwrap();
        let error = read("2x4").build(BTreeSet::new()).unwrap_err().to_string();
        assert!(error.contains("--hosts POOL=64x8"), "{error}");
        let built = read("a=2x4").build(BTreeSet::new()).unwrap();
        assert_eq!(built.market().pools().count(), 2);
        let error = read("c=2x4")
            .build(BTreeSet::new())
            .unwrap_err()
            .to_string();
        assert!(error.contains("there is no pool `c`"), "{error}");
    }

    #[test]
    fn what_a_pool_requires_every_host_on_paper_has() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.yaml");
        let host = "---\nkind: host\nname: h\npool: a\ngpus: 1\ngpu_model: H100\ngpu_devices: [/no/such]\n";
        let read = |word: &str| {
            let text = format!("kind: pool\nname: a\nrequire: [{word}]\n{host}");
            fs::write(&path, text).unwrap();
            Cluster::read(&[], Some(&path))
        };
        assert_eq!(read("devices").unwrap().gpus(), 1);
        let error = read("device")
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default();
        assert!(
            error.contains("require: `device` is no capability: did you mean `devices`?"),
            "{error}"
        );
    }
}
