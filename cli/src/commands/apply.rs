//! `sluice apply` and `sluice delete` of documents: all of them or none, with a report of each change.

mod fields;
mod foreign;
mod report;

use std::path::Path;

use sluice_common::api::{ApplyRequest, DeleteDocument, PutDocument};
use sluice_common::document::{PolicyId, PoolObjectId, SpecDocument};
use sluice_common::pool::PolicySpec;
use sluice_common::reason::Detail;
use sluice_common::request::StepRequest;

use super::outage_note;
use super::services::{self, FileService};
use crate::args::ApplyArgs;
use crate::client::{ApiError, ApplyResult, Client, RetryLimit};
use crate::documents::{self, Document, DocumentLocation, LocatedDocument, SkippedDocument};
use crate::elsewhere::ForeignDocument;
use crate::failure::Failure;
use crate::out::Out;
use foreign::ForeignChanges;
pub(super) use report::{ChangeOptions, Report, ServiceOutcome};

/// Subject of submitted steps if none is named.
const DEFAULT_SUBJECT: &str = "default";

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
        match put(document, &place, out)? {
            Some(AppliedDocument::Put(document)) => {
                request.put.push(*document);
                places.push(place);
            }
            Some(AppliedDocument::Foreign(document)) => foreign.add(document, place),
            Some(AppliedDocument::Service(service)) => {
                found_services.push(FileService::new(*service, place)?);
            }
            None => {}
        }
    }
    services::fill_subjects(client, &mut found_services, out)?;
    foreign.check(client, out)?;
    for (document, place) in foreign.documents(client, &request.put, out)? {
        request.put.push(document);
        places.push(place);
    }
    open_new_pools(client, &mut request.put);
    // A pool of gpuctl that is as its file says leaves only nodes to be moved.
    let has_others = foreign.has_nodes() || !found_services.is_empty();
    let mut report = Report::new(options, out);
    if !(request.put.is_empty() && has_others) {
        let made = changed(client, &request, options, out);
        report.changes(made.map_err(|failure| placed(failure, &places))?)?;
    }
    let moved = foreign.move_nodes(client, options, out)?;
    // Each by itself, and after the pools in which they run.
    services::put(client, &found_services, options.dry_run, &mut report, out)?;
    Ok(report.end()?.max(moved))
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
        match put(document, &place, out)? {
            Some(AppliedDocument::Put(document)) => {
                deletes.push((delete(*document, &place)?, place))
            }
            Some(AppliedDocument::Foreign(document)) => {
                let delete = foreign::delete(&document);
                let delete = delete.map_err(|why| Failure::Failed(format!("{place}: {why}")))?;
                deletes.push((delete, place));
            }
            Some(AppliedDocument::Service(service)) => {
                services.push(FileService::new(*service, place)?);
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
    Service(Box<StepRequest>),
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
        Err(SkippedDocument::Service(service)) => {
            return Ok(Some(AppliedDocument::Service(service)));
        }
        Err(SkippedDocument::Step) => (
            "step",
            "hand it in with `sluice submit -f`, or the whole file with `sluice create -f`; `sluice cancel ID` stops a step",
        ),
    };
    Err(Failure::Failed(format!(
        "{place}: kind: `{kind}` is not applied: {way}"
    )))
}

/// Names the field of an error as it is in the one document that a command has made.
fn of_one(failure: Failure) -> Failure {
    let Failure::Api(ApiError::Refused { error, .. }) = &failure else {
        return failure;
    };
    match in_document(&error.message) {
        Some((_, message)) => Failure::Failed(message.to_owned()),
        None => failure,
    }
}

/// Makes or previews the change of one document, and reports it.
pub(super) fn make(
    client: &Client,
    request: &ApplyRequest,
    options: ChangeOptions,
    out: Out,
) -> Result<u8, Failure> {
    let mut report = Report::new(options, out);
    report.changes(changed(client, request, options, out).map_err(of_one)?)?;
    report.end()
}

/// Makes or previews changes.
pub(super) fn changed(
    client: &Client,
    request: &ApplyRequest,
    options: ChangeOptions,
    out: Out,
) -> Result<ApplyResult, Failure> {
    let made = client.keep_trying(RetryLimit::CHANGE, outage_note(out), || {
        client.apply(request, options.dry_run, options.force)
    })?;
    Ok(made)
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
}
