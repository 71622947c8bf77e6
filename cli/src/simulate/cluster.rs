//! The cluster of a trace: hosts from `--hosts` or the policies file; pools, policies, platforms and rules from that
//! file, in the format of `sluice apply`, or without one a pool that is open to everybody.

use std::collections::BTreeSet;
use std::path::Path;

use sluice_common::api::PutDocument;
use sluice_common::document::SpecDocument;
use sluice_common::id::{PoolName, Subject};
use sluice_common::pool::{PolicySpec, PoolSpec};
use sluice_common::step::OnPreempt;
use sluice_common::time::Time;
use sluice_simulator::{SetupError, TraceRun};

use super::hosts::{self, SimulatedHost};
use crate::documents::{self, DocumentLocation, LocatedDocument, SkippedDocument};
use crate::failure::Failure;

/// Pool if no file declares any.
const DEFAULT_POOL: &str = "default";

/// Documents and hosts as written.
#[derive(Debug, Default)]
pub(super) struct ClusterFiles {
    documents: Vec<(PutDocument, DocumentLocation)>,
    hosts: Vec<SimulatedHost>,
}

impl ClusterFiles {
    /// Reads the files that the flags name.
    pub(super) fn read(hosts: &[String], policies: Option<&Path>) -> Result<Self, Failure> {
        let mut cluster = Self::default();
        if let Some(path) = policies {
            cluster.read_documents(path)?;
        }
        if !hosts.is_empty() {
            cluster.hosts.clear();
        }
        for hosts in hosts {
            let more = hosts::read(hosts, cluster.hosts.len())?;
            cluster.hosts.extend(more);
        }
        if cluster.hosts.is_empty() {
            let way_out = "write --hosts with a CSV file or a shape such as 64x8";
            return Err(Failure::Usage(format!("there are no hosts: {way_out}")));
        }
        Ok(cluster)
    }

    fn read_documents(&mut self, path: &Path) -> Result<(), Failure> {
        let text = documents::read_file(path)?;
        for LocatedDocument {
            document, place, ..
        } in documents::placed(&text, &documents::shown(path))?
        {
            match document.put() {
                Ok(put) => self.documents.push((put, place)),
                Err(SkippedDocument::Host(request)) => {
                    let host = SimulatedHost::of(*request);
                    let host = host.map_err(|e| Failure::Usage(format!("{place}: {e}")))?;
                    self.hosts.push(host);
                }
                // Read-only objects follow from the hosts.
                Err(SkippedDocument::ReadOnly(_)) => {}
                Err(SkippedDocument::Foreign(_)) => {
                    let way_out =
                        "it changes a cluster that runs: write pools, policies and hosts of ours";
                    return Err(Failure::Usage(format!("{place}: {way_out}")));
                }
                Err(SkippedDocument::Service(_) | SkippedDocument::Step) => {
                    let way_out = "steps come from --jobs: leave them out";
                    return Err(Failure::Usage(format!("{place}: {way_out}")));
                }
            }
        }
        Ok(())
    }

    /// Number of hosts.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    pub(super) fn gpus(&self) -> u64 {
        self.hosts.iter().map(SimulatedHost::gpus).sum()
    }

    /// Most GPUs of one host.
    pub(super) fn gpus_of_largest(&self) -> u64 {
        self.hosts
            .iter()
            .map(SimulatedHost::gpus)
            .max()
            .unwrap_or(0)
    }

    /// Whether its hosts name their GPU models.
    pub(super) fn says_models(&self) -> bool {
        self.hosts.iter().any(|host| host.says_model)
    }

    /// Returns notes about what has no effect in a simulation.
    pub(super) fn notes(&self) -> Vec<String> {
        let documents = || self.documents.iter().map(|(document, _)| document);
        let is_access = |document: &PutDocument| {
            matches!(document, PutDocument::Role(_) | PutDocument::Binding(_))
        };
        let is_template = |document: &PutDocument| matches!(document, PutDocument::Template { .. });
        let told = [
            (
                documents().any(is_access),
                "roles and bindings have no effect in a simulation",
            ),
            (
                documents().any(is_template),
                "templates apply to jobs as in a cluster, but nothing in them is run",
            ),
            (
                documents().any(requires),
                "every simulated host has what pools require of hosts",
            ),
            (
                documents().any(says_grace),
                "a job that is stopped ends at once in a simulation, whatever its grace period",
            ),
            (
                documents().any(freezes),
                "a job that is suspended is frozen at once in a simulation, and its GPUs come free whatever is on them",
            ),
        ];
        let told = told.into_iter().filter(|(is_said, _)| *is_said);
        told.map(|(_, sentence)| sentence.to_owned()).collect()
    }

    /// Builds the simulated cluster. Without policies, each of `subjects` may use all of it.
    pub(super) fn build(self, subjects: BTreeSet<&Subject>) -> Result<TraceRun, Failure> {
        let pools = self.pools();
        let has_policies =
            (self.documents.iter()).any(|(document, _)| matches!(document, PutDocument::Policy(_)));
        let mut run = TraceRun::new(Time::default());
        // Hosts join first, because a pool's platforms may refer to them.
        let bare = |pool: &String| PutDocument::pool(pool.as_str(), PoolSpec::default());
        make(&mut run, pools.iter().map(bare).collect(), &[])?;
        for host in self.hosts {
            join(&mut run, host, &pools)?;
        }
        let (mut documents, places): (Vec<_>, Vec<_>) = self.documents.into_iter().unzip();
        if !has_policies {
            let all = subjects.into_iter().flat_map(|subject| {
                let policy = |pool: &String| {
                    PutDocument::policy(pool.as_str(), subject.as_str(), PolicySpec::default())
                };
                pools.iter().map(policy)
            });
            documents.extend(all);
        }
        make(&mut run, documents, &places)?;
        Ok(run)
    }

    /// Returns the declared pools, or the default one.
    fn pools(&self) -> Vec<String> {
        let declared = self
            .documents
            .iter()
            .filter_map(|(document, _)| match document {
                PutDocument::Pool(it) => Some(it.id.name.clone()),
                _ => None,
            });
        let declared: Vec<String> = declared.collect();
        match declared.is_empty() {
            true => vec![DEFAULT_POOL.to_owned()],
            false => declared,
        }
    }
}

/// Applies documents; those beyond `places` are of the subjects of jobs.
fn make(
    run: &mut TraceRun,
    documents: Vec<PutDocument>,
    places: &[DocumentLocation],
) -> Result<(), Failure> {
    run.put(documents).map_err(|not_put| {
        let place = match &not_put {
            SetupError::Malformed { at, error } => Some(places.get(*at).map_or_else(
                || "--jobs".to_owned(),
                |place| place.of(Some(&error.field), &error.message).to_string(),
            )),
            SetupError::Refused { at, why } => at
                .and_then(|at| places.get(at))
                .map(|place| place.of(None, why).to_string()),
        };
        Failure::Usage(match place {
            Some(place) => format!("{place}: {not_put}"),
            None => not_put.to_string(),
        })
    })
}

fn join(run: &mut TraceRun, host: SimulatedHost, pools: &[String]) -> Result<(), Failure> {
    let made = host.made;
    let name = made.name.clone();
    let wrong = |why: String| Failure::Usage(format!("host `{name}`: {why}"));
    let pool = match (host.says_pool, pools) {
        (true, _) => made.pool.clone(),
        (false, [only]) => PoolName::new(only.as_str()).map_err(|e| wrong(e.to_string()))?,
        (false, _) => return Err(in_which()),
    };
    if run.state().pool(&pool).is_none() {
        let known = pools.join("`, `");
        return Err(wrong(format!(
            "there is no pool `{pool}`: there are `{known}`"
        )));
    }
    let joined = run.join(made.name, pool, made.labels, made.inventory);
    joined.map_err(wrong)
}

fn in_which() -> Failure {
    Failure::Usage(
        "--hosts: there are several pools: write which, as in --hosts POOL=64x8, or give the file a column `pool`"
            .to_owned(),
    )
}

fn requires(document: &PutDocument) -> bool {
    matches!(document, PutDocument::Pool(it) if !it.spec.require.is_empty())
}

fn says_grace(document: &PutDocument) -> bool {
    let PutDocument::Pool(SpecDocument { spec, .. }) = document else {
        return false;
    };
    spec.defaults.grace_period.is_some() || spec.max.grace_period.is_some()
}

fn freezes(document: &PutDocument) -> bool {
    matches!(document, PutDocument::Pool(it) if it.spec.defaults.on_preempt == Some(OnPreempt::Suspend))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(hosts: &[&str], text: &str) -> Result<ClusterFiles, Failure> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.yaml");
        fs::write(&path, text).unwrap();
        let hosts: Vec<String> = hosts.iter().map(|hosts| (*hosts).to_owned()).collect();
        ClusterFiles::read(&hosts, Some(&path))
    }

    fn refused(hosts: &[&str], text: &str) -> String {
        let built = read(hosts, text).and_then(|cluster| cluster.build(BTreeSet::new()));
        built.expect_err("it cannot be").to_string()
    }

    #[test]
    fn what_has_no_meaning_on_paper_is_told() {
        let text = "kind: pool\nname: a\nmaintenance: fans\nrequire: [devices]\n\
                    defaults: {grace_period: 10s, on_preempt: suspend}\n---\n\
                    kind: role\nname: r\nrules: []\n---\nkind: template\nname: t\nworkdir: /x\n";
        let notes = read(&["2x4"], text).unwrap().notes();
        let words = [
            "roles and bindings",
            "templates apply to jobs",
            "every simulated host has",
            "whatever its grace period",
            "a job that is suspended is frozen",
        ];
        assert_eq!(notes.len(), words.len(), "{notes:?}");
        assert!(
            notes
                .iter()
                .zip(words)
                .all(|(note, word)| note.starts_with(word) || note.contains(word))
        );
        let played =
            "kind: pool\nname: b\nmaintenance: fans\nmax: {timeout: 1h}\ndefault_platform: any\n";
        assert!(read(&["2x4"], played).unwrap().notes().is_empty());
    }

    #[test]
    fn hosts_of_several_pools_say_in_which_they_are() {
        let text = "kind: pool\nname: a\n---\nkind: pool\nname: b\n---\nkind: policy\npool: a\nsubject: s\n";
        let error = refused(&["2x4"], text);
        assert!(error.contains("--hosts POOL=64x8"), "{error}");
        let built = read(&["a=2x4"], text).unwrap().build(BTreeSet::new());
        let built = built.unwrap();
        // The default one, and these two.
        assert_eq!(built.state().pools().len(), 3);
        assert_eq!(built.state().nodes().len(), 2);
        let error = refused(&["c=2x4"], text);
        assert!(error.contains("there is no pool `c`"), "{error}");
    }

    #[test]
    fn what_a_cluster_would_refuse_is_refused_with_document_and_line() {
        for (text, words) in [
            (
                "kind: pool\nname: a\n---\nkind: policy\npool: a\nsubject: s\nreserved: {gpu: 4}\nlimit: {gpu: 2}\n",
                "document 2: policy of `s` in pool `a`",
            ),
            (
                "kind: pool\nname: a\nrequire: [device]\n",
                "p.yaml:3: require[0]: `device` is not a capability: did you mean `devices`?",
            ),
            (
                "kind: pool\nname: a\ndefault_platform: h100\n",
                "has no platform `h100`",
            ),
            (
                "kind: pool\nname: a\n---\nkind: policy\npool: b\nsubject: s\n",
                "document 2: there is no pool `b`",
            ),
        ] {
            let error = refused(&["a=2x4:L40S"], text);
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_platform_may_be_of_hosts_that_are_there_or_be_declared() {
        let named = "kind: pool\nname: a\ndefault_platform: h100\n";
        assert!(
            read(&["2x4:H100"], named)
                .unwrap()
                .build(BTreeSet::new())
                .is_ok()
        );
        let declared = "kind: pool\nname: a\ndefault_platform: fast\n---\nkind: platform\npool: a\nname: fast\n\
                        selector: {gpu_model: H100}\n";
        let built = read(&["2x4:H100"], declared)
            .unwrap()
            .build(BTreeSet::new());
        assert!(built.is_ok(), "{built:?}");
    }
}
