//! `sluice scale`, `sluice rollout`, and the services of files for `sluice apply` and `sluice delete`.

use std::time::{Duration, Instant};

use sluice_common::api::{ChangeOutcome, RolloutState, ServiceView, StageOutcome};
use sluice_common::request::StepRequest;
use sluice_common::step::WorkKind;

use super::apply::{Report, ServiceOutcome};
use super::{outage_note, submit};
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
pub(super) struct FileService {
    name: String,
    request: StepRequest,
    place: DocumentLocation,
}

impl FileService {
    /// # Errors
    /// If it has no name.
    pub(super) fn new(request: StepRequest, place: DocumentLocation) -> Result<Self, Failure> {
        let missing = || Failure::Failed(format!("{place}: name: it is missing"));
        let name = request.name.clone().ok_or_else(missing)?;
        Ok(Self {
            name,
            request,
            place,
        })
    }
}

impl FileService {
    /// Whether it is one that people look at in a browser, or call from their own machine, as gpuctl's kinds of work are.
    fn is_opened_by_people(&self) -> bool {
        let work = self.request.work;
        let is_opened = matches!(work, Some(WorkKind::Notebook | WorkKind::Inference));
        is_opened && !self.request.ports.is_empty()
    }
}

/// Fills in the subject of services that name none, as `sluice submit` does.
pub(super) fn fill_subjects(
    client: &Client,
    services: &mut [FileService],
    out: Out,
) -> Result<(), Failure> {
    for service in services {
        submit::fill_subject(client, std::slice::from_mut(&mut service.request), out)?;
    }
    Ok(())
}

/// Applies the services of files, each even if others are refused.
pub(super) fn put(
    client: &Client,
    services: &[FileService],
    dry_run: bool,
    report: &mut Report,
    out: Out,
) -> Result<(), Failure> {
    for service in services {
        let call = || match dry_run {
            true => preview(client, service),
            false => made(client, service),
        };
        match client.keep_trying(RetryLimit::CHANGE, outage_note(out), call) {
            Ok((outcome, obstacles)) => {
                report.service(outcome)?;
                if service.is_opened_by_people() && !dry_run {
                    let name = safe(&service.name);
                    out.notice(&format!(
                        "`sluice open {name}` opens it here, once it is ready"
                    ));
                }
                obstacles.iter().for_each(|it| report.failed(it));
            }
            Err(error) => {
                let (place, name) = (&service.place, safe(&service.name));
                report.failed(&format!("{place}: service/{name} was not applied: {error}"));
            }
        }
    }
    Ok(())
}

/// Outcome of a service, with what keeps its replicas from starting.
type ServiceResult = Result<(ServiceOutcome, Vec<String>), ApiError>;

fn made(client: &Client, FileService { name, request, .. }: &FileService) -> ServiceResult {
    let view = client.put_service(name, request)?;
    let outcome = ServiceOutcome {
        name: name.clone(),
        outcome: view.outcome.unwrap_or(ChangeOutcome::Changed),
        note: "",
    };
    Ok((outcome, Vec::new()))
}

fn preview(client: &Client, FileService { name, request, .. }: &FileService) -> ServiceResult {
    let preview = client.preview_service(name, request)?;
    let note = match (preview.outcome, preview.new_revision) {
        (ChangeOutcome::Changed, true) => ": its replicas would be replaced",
        (ChangeOutcome::Changed, false) => ": its replicas would stay",
        (ChangeOutcome::Created | ChangeOutcome::Unchanged | ChangeOutcome::Deleted, _) => "",
    };
    let is_failed = |outcome: StageOutcome| outcome == StageOutcome::Failed;
    let stages = preview.replica.stages.iter();
    let stages = stages.filter(|stage| is_failed(stage.outcome));
    let checks = stages.flat_map(|stage| &stage.checks);
    let failed = checks.filter(|check| is_failed(check.outcome));
    let obstacles = failed.map(|check| {
        let (name, why) = (safe(name), safe(&check.message));
        format!("service/{name}: a replica could not start: {why}")
    });
    let outcome = ServiceOutcome {
        name: name.clone(),
        outcome: preview.outcome,
        note,
    };
    Ok((outcome, obstacles.collect()))
}

/// Formats the names of services.
pub(super) fn names(services: &[FileService]) -> String {
    let names = services
        .iter()
        .map(|it| format!("service/{}", safe(&it.name)));
    names.collect::<Vec<_>>().join(", ")
}

/// Deletes the services of a file, each even if others fail, or checks in a dry run that they are there.
pub(super) fn delete(
    client: &Client,
    services: &[FileService],
    dry_run: bool,
    report: &mut Report,
    out: Out,
) -> Result<(), Failure> {
    for FileService { name, place, .. } in services {
        let call = || match dry_run {
            true => client.service(name).map(drop),
            false => client.delete_service(name),
        };
        match client.keep_trying(RetryLimit::CHANGE, outage_note(out), call) {
            Ok(()) => report.service(ServiceOutcome {
                name: name.clone(),
                outcome: ChangeOutcome::Deleted,
                note: "",
            })?,
            Err(error) => {
                let name = safe(name);
                report.failed(&format!("{place}: service/{name} was not deleted: {error}"));
            }
        }
    }
    Ok(())
}
