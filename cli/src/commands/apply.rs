//! `sluice apply` and `sluice delete` of documents: all of them or none, with a report of each change.

mod fields;
mod foreign;

use std::collections::BTreeMap;
use std::path::Path;

use sluice_common::api::{
    ApplyRequest, CarvePlanView, ChangeOutcome, DeleteDocument, DocumentKind, InUseView,
    PutDocument, SpecChangeView,
};
use sluice_common::document::{PolicyId, PoolObjectId, SpecDocument};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::Detail;

use super::outage_note;
use super::services::{self, FileService};
use crate::args::{ApplyArgs, Format};
use crate::client::{ApiError, ApplyResult, Client, Fields, RetryLimit};
use crate::documents::{self, Document, DocumentLocation, LocatedDocument, SkippedDocument};
use crate::elsewhere::ForeignDocument;
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::{safe, shortened};
use crate::show;
use foreign::ForeignChanges;

/// Subject of submitted steps if none is named.
const DEFAULT_SUBJECT: &str = "default";
/// Steps named in one line.
const NAMED_STEPS: usize = 10;

/// Options of a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChangeOptions {
    pub(super) dry_run: bool,
    pub(super) force: bool,
}

/// Runs `sluice apply`.
pub(crate) fn run(client: &Client, args: &ApplyArgs, out: Out) -> Result<u8, Failure> {
    let read: Vec<Vec<LocatedDocument>> = args
        .file
        .iter()
        .map(|file| read(file))
        .collect::<Result<_, _>>()?;
    let options = ChangeOptions {
        dry_run: args.dry_run,
        force: args.force,
    };
    documents(client, read.into_iter().flatten(), options, out)
}

/// Applies documents, all of them or none, and then moves the nodes that documents of other tools list.
pub(super) fn documents(
    client: &Client,
    documents: impl Iterator<Item = LocatedDocument>,
    options: ChangeOptions,
    out: Out,
) -> Result<u8, Failure> {
    let mut request = ApplyRequest::default();
    let mut places = Vec::new();
    let mut foreign = ForeignChanges::default();
    let mut found_services: Vec<FileService> = Vec::new();
    for LocatedDocument {
        document,
        place,
        notes,
    } in documents
    {
        let notes = notes.iter();
        notes.for_each(|note| out.warning(&place.noted(note)));
        if let Document::Service(service) = document {
            found_services.push((*service, place));
            continue;
        }
        match put(document, &place, out)? {
            Some(AppliedDocument::Put(document)) => {
                request.put.push(*document);
                places.push(place);
            }
            Some(AppliedDocument::Foreign(document)) => foreign.add(document, place),
            None => {}
        }
    }
    foreign.check(client, out)?;
    for (document, place) in foreign.documents(client, &request.put, out)? {
        request.put.push(document);
        places.push(place);
    }
    open_new_pools(client, &mut request.put);
    // A pool of gpuctl that is as its file says leaves only nodes to be moved.
    let has_others = foreign.has_nodes() || !found_services.is_empty();
    let mut code = 0;
    if !(request.put.is_empty() && has_others) {
        let made = make(client, &request, options, out);
        code = made.map_err(|failure| placed(failure, &places))?;
    }
    let moved = foreign.move_nodes(client, options, out)?;
    // Each by itself, and after the pools in which they run.
    let of_services = services::put(client, &found_services, options.dry_run, out)?;
    Ok(code.max(moved).max(of_services))
}

/// Adds a policy of the caller's own subject to a new pool without any policy, so that its maker can use it at once. It
/// is reported with the other changes.
fn open_new_pools(client: &Client, put: &mut Vec<PutDocument>) {
    let subject = client.context().file.subject.clone();
    let subject = subject.unwrap_or_else(|| DEFAULT_SUBJECT.to_owned());
    let bound = |pool: &String| {
        let mut policies = put.iter();
        policies.any(|it| matches!(it, PutDocument::Policy(it) if it.id.pool == *pool))
    };
    let pools = put.iter().filter_map(|document| match document {
        PutDocument::Pool(it) if !bound(&it.id.name) => Some(&it.id.name),
        _ => None,
    });
    let is_new = |pool: &&String| {
        let known = client.pool(pool);
        known.is_err_and(|error| error.status() == Some(404))
    };
    let new: Vec<String> = pools.filter(is_new).cloned().collect();
    put.extend(new.into_iter().map(|pool| {
        let names = PolicyId {
            pool,
            subject: subject.clone(),
        };
        PutDocument::Policy(SpecDocument {
            // If somebody was faster, their policy stays.
            version: Some(0),
            ..SpecDocument::new(names, PolicySpec::default())
        })
    }));
}

/// Deletions with their locations, and services to delete.
type FileDelete = (Vec<(DeleteDocument, DocumentLocation)>, Vec<FileService>);

/// Returns the deletions that the documents of a file stand for, with their locations.
pub(super) fn deletes(file: &Path, out: Out) -> Result<FileDelete, Failure> {
    let mut deletes = Vec::new();
    let mut services = Vec::new();
    for LocatedDocument {
        document, place, ..
    } in read(file)?
    {
        let document = match document {
            Document::Service(service) => {
                services.push((*service, place));
                continue;
            }
            other => other,
        };
        match put(document, &place, out)? {
            Some(AppliedDocument::Put(document)) => {
                deletes.push((delete(*document, &place)?, place))
            }
            Some(AppliedDocument::Foreign(document)) => {
                let delete = foreign::delete(&document);
                let delete = delete.map_err(|why| Failure::Failed(format!("{place}: {why}")))?;
                deletes.push((delete, place));
            }
            None => {}
        }
    }
    Ok((deletes, services))
}

fn delete(document: PutDocument, place: &DocumentLocation) -> Result<DeleteDocument, Failure> {
    match document {
        PutDocument::Cluster(_) => Err(Failure::Failed(format!(
            "{place}: kind: `cluster` cannot be deleted: remove the fields from the document and apply it"
        ))),
        PutDocument::Topology(_) => Err(Failure::Failed(format!(
            "{place}: kind: `topology` cannot be deleted: apply it with `levels: []`"
        ))),
        PutDocument::Pool(it) => Ok(DeleteDocument::Pool { name: it.id.name }),
        PutDocument::Template { name, .. } => Ok(DeleteDocument::Template { name }),
        PutDocument::Validation(it) => Ok(DeleteDocument::Validation { name: it.id.name }),
        PutDocument::Platform(it) => {
            let PoolObjectId { pool, name } = it.id;
            Ok(DeleteDocument::Platform { pool, name })
        }
        PutDocument::Role(it) => Ok(DeleteDocument::Role { name: it.id.name }),
        PutDocument::Binding(it) => Ok(DeleteDocument::Binding { name: it.id.name }),
        PutDocument::Policy(it) => {
            let PolicyId { pool, subject } = it.id;
            Ok(DeleteDocument::Policy { pool, subject })
        }
    }
}

/// Maps an error of the cluster to the document and line at fault; the cluster counts documents in the order in which
/// they were sent.
pub(super) fn placed(failure: Failure, places: &[DocumentLocation]) -> Failure {
    let Failure::Api(ApiError::Refused { error, .. }) = &failure else {
        return failure;
    };
    let number = |name: &str| match error.detail.get(name)? {
        Detail::Number(n) => usize::try_from(*n).ok(),
        Detail::Text(_) => None,
    };
    let field = match error.detail.get("field") {
        Some(Detail::Text(field)) => in_document(field),
        Some(Detail::Number(_)) | None => None,
    };
    let at = field.map(|(at, _)| at).or_else(|| number("change"));
    let Some(place) = at.and_then(|at| places.get(at)) else {
        return failure;
    };
    let message = in_document(&error.message).map_or(&*error.message, |(_, rest)| rest);
    let place = place.of(field.map(|(_, field)| field), message);
    Failure::Failed(format!("{place}: {message}"))
}

/// Splits a field such as `put[3].name` into the document's number and the rest.
fn in_document(text: &str) -> Option<(usize, &str)> {
    let rest = text
        .strip_prefix("put[")
        .or_else(|| text.strip_prefix("delete["))?;
    let (number, rest) = rest.split_once("].")?;
    Some((number.parse().ok()?, rest))
}

fn read(file: &Path) -> Result<Vec<LocatedDocument>, Failure> {
    documents::placed(&documents::read_file(file)?, &documents::shown(file))
}

/// A document to be carried out.
enum AppliedDocument {
    Put(Box<PutDocument>),
    Foreign(ForeignDocument),
}

/// Returns the document to carry out; none for one that is read-only.
fn put(
    document: Document,
    place: &DocumentLocation,
    out: Out,
) -> Result<Option<AppliedDocument>, Failure> {
    let (kind, way) = match document.put() {
        Ok(document) => return Ok(Some(AppliedDocument::Put(Box::new(document)))),
        Err(SkippedDocument::Foreign(document)) => {
            return Ok(Some(AppliedDocument::Foreign(document)));
        }
        Err(SkippedDocument::ReadOnly(what)) => {
            out.notice(&format!("{place}: {what}"));
            return Ok(None);
        }
        Err(SkippedDocument::Host(_)) => {
            ("host", "only `sluice dev --file` makes hosts for trials")
        }
        Err(SkippedDocument::Service) => ("service", "apply it by itself"),
        Err(SkippedDocument::Step) => (
            "step",
            "hand it in with `sluice submit -f`, or the whole file with `sluice create -f`",
        ),
    };
    Err(Failure::Failed(format!(
        "{place}: kind: `{kind}` is not applied: {way}"
    )))
}

/// Makes or previews changes, and reports them.
pub(super) fn make(
    client: &Client,
    request: &ApplyRequest,
    options: ChangeOptions,
    out: Out,
) -> Result<u8, Failure> {
    let made = client.keep_trying(RetryLimit::CHANGE, outage_note(out), || {
        client.apply(request, options.dry_run, options.force)
    })?;
    match out.format() {
        Format::Table | Format::Wide => out.result(&text(&made))?,
        Format::Json | Format::Yaml => show::value(&made, out)?,
        Format::Name => {
            let names: String = made.changes.iter().map(|it| name(it) + "\n").collect();
            out.result(&names)?;
        }
    }
    let refused = options.dry_run && !options.force && !made.in_use.is_empty();
    if refused {
        out.error(
            "it would be rejected, because it removes what is in use: free that first, or use --force, which stops nothing that runs",
        );
    }
    Ok(if refused { FAILED } else { 0 })
}

fn text(made: &ApplyResult) -> String {
    let mut lines: Vec<String> = made
        .changes
        .iter()
        .map(|it| line(it, made.dry_run))
        .collect();
    let (would, can) = match made.dry_run {
        true => ("would be", "could then"),
        false => ("was", "can now"),
    };
    for InUseView { message, steps } in &made.in_use {
        lines.push(match &steps[..] {
            [] => format!("in use: {}", safe(message)),
            steps => format!("in use: {} ({})", safe(message), named(steps)),
        });
    }
    if !made.exposed.is_empty() {
        lines.push(format!(
            "others {can} preempt {}: {}",
            count(made.exposed.len()),
            named(&made.exposed)
        ));
    }
    for it in &made.preempted {
        let (step, by) = (safe(&it.step), safe(&it.by));
        lines.push(format!("{step} {would} preempted at once, for {by}"));
    }
    if !made.rejected.is_empty() {
        let verb = match made.dry_run {
            true => "would be rejected",
            false => "rejected",
        };
        lines.push(format!(
            "{} that waited and could never start {verb}: {}",
            count(made.rejected.len()),
            named(&made.rejected)
        ));
    }
    for CarvePlanView { node, message } in &made.carvings {
        let node = node.iter().map(|node| safe(node) + ": ");
        lines.push(node.collect::<String>() + &safe(message));
    }
    lines.join("\n") + "\n"
}

fn count(n: usize) -> String {
    match n {
        1 => "one step".to_owned(),
        n => format!("{n} steps"),
    }
}

fn named(steps: &[String]) -> String {
    shortened(steps.iter().map(|step| safe(step)), NAMED_STEPS)
}

fn name(change: &SpecChangeView<Fields>) -> String {
    let pool = safe(change.pool.as_deref().unwrap_or_default());
    let own = safe(change.name.as_deref().unwrap_or_default());
    match (change.kind, &change.subject) {
        (DocumentKind::Role, _) => format!("role/{own}"),
        (DocumentKind::Binding, _) => format!("binding/{own}"),
        (DocumentKind::Cluster, _) => "cluster".to_owned(),
        (DocumentKind::Topology, _) => "topology".to_owned(),
        (DocumentKind::Validation, _) => {
            let name = change.name.as_deref().unwrap_or_default();
            format!("validation/{}", safe(name))
        }
        (DocumentKind::Template, _) => {
            let name = change.name.as_deref().unwrap_or_default();
            format!("template/{}", safe(name))
        }
        (DocumentKind::Policy, Some(subject)) => format!("policy/{pool}/{}", safe(subject)),
        (DocumentKind::Platform, _) => {
            let platform = change.platform.as_deref().unwrap_or_default();
            format!("platform/{pool}/{}", safe(platform))
        }
        (DocumentKind::Policy | DocumentKind::Pool, _) => format!("pool/{pool}"),
    }
}

fn line(change: &SpecChangeView<Fields>, dry_run: bool) -> String {
    let word = match change.outcome {
        ChangeOutcome::Created => "created",
        ChangeOutcome::Changed => "changed",
        ChangeOutcome::Unchanged => "unchanged",
        ChangeOutcome::Deleted => "deleted",
    };
    let dry = if dry_run { " (dry run)" } else { "" };
    let line = format!("{} {word}{dry}", name(change));
    let (before, after) = (
        fields::of(change.before.as_ref()),
        fields::of(change.after.as_ref()),
    );
    let fields: Vec<String> = match change.outcome {
        ChangeOutcome::Created => after
            .iter()
            .map(|(key, now)| format!("{key} {now}"))
            .collect(),
        ChangeOutcome::Changed => differences(&before, &after),
        ChangeOutcome::Unchanged | ChangeOutcome::Deleted => Vec::new(),
    };
    match fields.is_empty() {
        true => line,
        false => format!("{line}: {}", fields.join(", ")),
    }
}

fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let of = |terms: &BTreeMap<String, String>, key: &String| {
        terms.get(key).cloned().unwrap_or_else(|| "none".to_owned())
    };
    let changed = keys
        .into_iter()
        .filter(|key| before.get(*key) != after.get(*key));
    changed
        .map(|key| format!("{key} {} -> {}", of(before, key), of(after, key)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_refusal_names_the_document_and_its_line_and_not_how_it_was_sent() {
        let text = "kind: pool\nname: p\n---\nkind: pool\nname: q\nrequire: [freeze]\n";
        let placed_all = documents::placed(text, "f.yaml").unwrap();
        let places: Vec<DocumentLocation> = placed_all.into_iter().map(|it| it.place).collect();
        let said = |message: &str, detail: Value| {
            let error = json!({"code": "c", "message": message, "detail": detail});
            let error = serde_json::from_value(error).unwrap();
            placed(
                Failure::Api(ApiError::Refused { status: 422, error }),
                &places,
            )
            .to_string()
        };
        assert_eq!(
            said(
                "put[1].require[0]: `frost` is nothing",
                json!({"field": "put[1].require[0]"})
            ),
            "f.yaml:6, document 2: require[0]: `frost` is nothing"
        );
        assert_eq!(
            said("pool `p` is as it is", json!({"change": 0})),
            "f.yaml:2, document 1: pool `p` is as it is"
        );
        assert_eq!(said("no", json!({})), "no");
    }

    #[test]
    fn what_changes_is_told_field_by_field_and_then_what_it_means() {
        let made: ApplyResult = serde_json::from_value(json!({
            "dry_run": true,
            "changes": [
                {"kind": "pool", "pool": "training", "subject": null, "outcome": "created", "before": null,
                 "after": {"description": "shared", "capacity": {"gpu": 8}, "min_runtime": "0s"}},
                {"kind": "policy", "pool": "training", "subject": "prod", "outcome": "changed",
                 "before": {"priority": 5, "reserved": {"gpu": 4}, "limit": {"gpu": 6}},
                 "after": {"priority": 10, "reserved": {"gpu": 4}, "limit": {}}},
                {"kind": "policy", "pool": "training", "subject": "old", "outcome": "deleted",
                 "before": {"priority": 0, "reserved": {}, "limit": {}}, "after": null},
            ],
            "in_use": [{"message": "policy of `old`: steps run", "steps": ["x"]}],
            "exposed": ["a", "b"],
            "preempted": [{"step": "a", "by": "c"}],
            "rejected": ["d"],
        }))
        .unwrap();
        assert_eq!(
            text(&made),
            "pool/training created (dry run): capacity.gpu 8, description shared\n\
             policy/training/prod changed (dry run): limit.gpu 6 -> none, priority 5 -> 10\n\
             policy/training/old deleted (dry run)\n\
             in use: policy of `old`: steps run (x)\n\
             others could then preempt 2 steps: a, b\n\
             a would be preempted at once, for c\n\
             one step that waited and could never start would be rejected: d\n"
        );
    }
}
