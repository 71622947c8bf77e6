//! `sluice scale`, `sluice rollout`, and the services of files for `sluice apply` and `sluice delete`.

use std::time::{Duration, Instant};

use sluice_common::api::{ChangeOutcome, RolloutState, ServiceView, StageOutcome};
use sluice_common::request::StepRequest;

use super::outage_note;
use crate::args::{RolloutAction, RolloutArgs, RolloutStatusArgs, ScaleArgs};
use crate::client::{ApiError, Client, RetryLimit};
use crate::documents::DocumentLocation;
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::safe;
use crate::show;

/// Time between two reads of a service that is waited for.
const POLL: Duration = Duration::from_millis(300);

/// Runs `sluice scale`.
pub(crate) fn scale(client: &Client, args: &ScaleArgs, out: Out) -> Result<u8, Failure> {
    let scaled = client.keep_trying(RetryLimit::CHANGE, outage_note(out), || {
        client.scale_service(&args.name, args.replicas)
    })?;
    show::one(&scaled, out, |it| {
        format!("service/{} scaled to {}\n", safe(&it.name), it.replicas)
    })?;
    Ok(0)
}

/// Runs `sluice rollout`.
pub(crate) fn rollout(client: &Client, args: &RolloutArgs, out: Out) -> Result<u8, Failure> {
    match &args.action {
        RolloutAction::Status(args) => status(client, args, out),
        RolloutAction::Undo(args) => {
            let undone = client.keep_trying(RetryLimit::CHANGE, outage_note(out), || {
                client.undo_service(&args.name, args.to)
            })?;
            show::one(&undone, out, |it| {
                format!("service/{} is at version {}\n", safe(&it.name), it.revision)
            })?;
            Ok(0)
        }
    }
}

/// Waits until a change of version has ended in any way.
fn status(client: &Client, args: &RolloutStatusArgs, out: Out) -> Result<u8, Failure> {
    let began = Instant::now();
    let mut told = String::new();
    loop {
        let found = client.keep_trying(RetryLimit::READ, outage_note(out), || {
            client.service(&args.name)
        })?;
        let is_over = found.status.state != RolloutState::Rolling;
        if is_over || args.no_wait {
            show::one(&found, out, |it| progress(it) + "\n")?;
            let failed =
                found.status.state == RolloutState::Stalled || found.status.rolled_back.is_some();
            return Ok(if failed { FAILED } else { 0 });
        }
        if args
            .timeout
            .is_some_and(|timeout| began.elapsed() >= timeout)
        {
            return Err(Failure::TimedOut(format!(
                "the change is not over: {}",
                progress(&found)
            )));
        }
        let now = progress(&found);
        if now != told {
            out.progress(&now);
            told = now;
        }
        std::thread::sleep(POLL);
    }
}

/// Says in one line how far a change of version is.
fn progress(service: &ServiceView) -> String {
    let status = &service.status;
    let name = safe(&service.name);
    if let Some(back) = &status.rolled_back {
        let why = safe(&back.why);
        return format!(
            "service/{name}: version {} was rolled back: {why}",
            back.revision
        );
    }
    let (revision, updated, replicas) = (service.revision, status.updated, service.replicas);
    match (status.state, &status.why) {
        (RolloutState::Stalled, why) => {
            let why = safe(why.as_deref().unwrap_or_default());
            format!("service/{name}: version {revision} stalls: {why}")
        }
        (RolloutState::Complete, _) => {
            format!(
                "service/{name}: version {revision} is complete, {} of {replicas} ready",
                service.ready
            )
        }
        (RolloutState::Rolling, _) => {
            let old = status.outdated;
            format!(
                "service/{name}: version {revision}: {updated} of {replicas} ready, {old} of others left"
            )
        }
    }
}

/// A service of a file, with its place there.
pub(super) type FileService = (StepRequest, DocumentLocation);

/// Applies the services of files, each by itself.
pub(super) fn put(
    client: &Client,
    services: &[FileService],
    dry_run: bool,
    out: Out,
) -> Result<u8, Failure> {
    let mut code = 0;
    for (request, place) in services {
        let request = &of_caller(client, request);
        let name = name_of(request, place)?;
        let done = match dry_run {
            true => preview(client, name, request, out)?,
            false => made(client, name, request)?,
        };
        match done {
            Ok((line, is_good)) => {
                out.result(&(line + "\n"))?;
                code = if is_good { code } else { FAILED };
            }
            Err(error) => return Err(Failure::Failed(format!("{place}: {error}"))),
        }
    }
    Ok(code)
}

/// The service for the caller's own subject, if it names none.
fn of_caller(client: &Client, request: &StepRequest) -> StepRequest {
    let own = client.context().file.subject.clone();
    StepRequest {
        subject: request.subject.clone().or(own),
        ..request.clone()
    }
}

/// One line about the outcome, and whether it is good; or the refusal.
type ServiceResult = Result<(String, bool), ApiError>;

fn made(client: &Client, name: &str, request: &StepRequest) -> Result<ServiceResult, Failure> {
    let before = match client.service(name) {
        Ok(before) => Some(before.version),
        Err(error) if error.status() == Some(404) => None,
        Err(error) => return Ok(Err(error)),
    };
    let after = match client.put_service(name, request) {
        Ok(after) => after,
        Err(error) => return Ok(Err(error)),
    };
    let outcome = match before {
        None => "created",
        Some(version) if version == after.version => "unchanged",
        Some(_) => "changed",
    };
    Ok(Ok((format!("service/{} {outcome}", safe(name)), true)))
}

fn preview(
    client: &Client,
    name: &str,
    request: &StepRequest,
    out: Out,
) -> Result<ServiceResult, Failure> {
    let preview = match client.preview_service(name, request) {
        Ok(preview) => preview,
        Err(error) => return Ok(Err(error)),
    };
    let outcome = match (preview.outcome, preview.new_revision) {
        (ChangeOutcome::Created, _) => "would be created",
        (ChangeOutcome::Unchanged, _) => "unchanged",
        (ChangeOutcome::Changed | ChangeOutcome::Deleted, true) => {
            "would change: its replicas would be replaced"
        }
        (ChangeOutcome::Changed | ChangeOutcome::Deleted, false) => {
            "would change: its replicas would stay"
        }
    };
    let is_failed = |outcome: StageOutcome| outcome == StageOutcome::Failed;
    let stages = preview.replica.stages.iter();
    let stages = stages.filter(|stage| is_failed(stage.outcome));
    let checks = stages.flat_map(|stage| &stage.checks);
    let failed = checks.filter(|check| is_failed(check.outcome));
    let mut is_good = true;
    for check in failed {
        is_good = false;
        out.error(&format!(
            "a replica could not start: {}",
            safe(&check.message)
        ));
    }
    Ok(Ok((format!("service/{} {outcome}", safe(name)), is_good)))
}

/// The names of services in files.
pub(super) fn names_of(services: &[FileService]) -> Result<Vec<String>, Failure> {
    let names = services
        .iter()
        .map(|(request, place)| name_of(request, place));
    names.map(|name| name.map(str::to_owned)).collect()
}

fn name_of<'a>(request: &'a StepRequest, place: &DocumentLocation) -> Result<&'a str, Failure> {
    let missing = || Failure::Failed(format!("{place}: name: it is missing"));
    request.name.as_deref().ok_or_else(missing)
}
