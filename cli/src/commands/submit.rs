//! `sluice submit`: submits steps and prints their ids, one a line, in order. A rejected step is stored too; its reason
//! goes to stderr and the exit code reports it.

use serde::Serialize;
use sluice_common::api::{BatchItem, ErrorBody, StepView};
use sluice_common::limit::MAX_BATCH_STEPS;
use sluice_common::request::StepRequest;
use sluice_common::state::StepState;

use super::{outage_note, preview};
use crate::args::SubmitArgs;
use crate::client::{Client, RetryLimit};
use crate::documents::LocatedDocument;
use crate::failure::{FAILED, Failure};
use crate::local_inputs::InputPaths;
use crate::out::Out;
use crate::render::safe;
use crate::request_builder::Defaults;
use crate::request_builder::names;
use crate::show;
use crate::step_source::{self, SubmitRequests};

/// Runs `sluice submit`; `apply` applies the services of a file of another tool, and returns the exit code.
pub(crate) fn run(
    client: &Client,
    mut args: SubmitArgs,
    out: Out,
    apply: impl FnOnce(Vec<LocatedDocument>, bool) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let defaults = Defaults::of(&client.context().file);
    let dry_run = args.dry_run;
    let inputs = InputPaths::of(&args.step.inputs)?;
    args.step.input_files = inputs.files();
    let SubmitRequests {
        steps: mut requests,
        services,
    } = step_source::submission(args, &defaults, out)?;
    if !services.is_empty() {
        let code = apply(services, dry_run)?;
        if code != 0 || requests.is_empty() {
            return Ok(code);
        }
    }
    fill_subject(client, &mut requests, out)?;
    if !dry_run {
        inputs.upload(client, out)?;
    }
    send(client, requests, dry_run, out)
}

/// Submits requests, or previews each of them.
pub(super) fn send(
    client: &Client,
    requests: Vec<StepRequest>,
    dry_run: bool,
    out: Out,
) -> Result<u8, Failure> {
    if dry_run {
        let requests = names::without_each_other(requests);
        return preview::run(client, &requests, out);
    }
    match <[StepRequest; 1]>::try_from(requests) {
        Ok([request]) => submit_one(client, &request, out),
        Err(requests) => submit_many(client, requests, out),
    }
}

/// Fills in the subject of steps for which neither a flag, a file nor the context names one: that which the caller may
/// submit for, if it is exactly one.
pub(super) fn fill_subject(
    client: &Client,
    requests: &mut [StepRequest],
    out: Out,
) -> Result<(), Failure> {
    // A step inside an allocation has the subject of that.
    let names_none = |request: &StepRequest| {
        let defaults = request.defaults.as_ref();
        let is_outside = request.inside.is_none();
        is_outside
            && request.subject.is_none()
            && defaults.is_none_or(|below| below.subject.is_none())
    };
    if !requests.iter().any(names_none) {
        return Ok(());
    }
    let own = own_subject(client, out)?;
    for request in requests.iter_mut().filter(|request| names_none(request)) {
        request.subject.clone_from(&own);
    }
    Ok(())
}

/// The subject of steps that name none: that of the context, or the only one that the caller may submit for.
pub(super) fn own_subject(client: &Client, out: Out) -> Result<Option<String>, Failure> {
    let own = client.context().file.subject.clone();
    if own.is_some() {
        return Ok(own);
    }
    let ask = || client.whoami();
    let who = client.keep_trying(RetryLimit::CHANGE, outage_note(out), ask)?;
    Ok(who.submits_for)
}

fn submit_one(client: &Client, request: &StepRequest, out: Out) -> Result<u8, Failure> {
    let step = client.keep_trying(RetryLimit::CHANGE, outage_note(out), || {
        client.submit(request)
    })?;
    show::one(&step, out, |step| safe(&step.id))?;
    tell_warnings(&step, out);
    Ok(if tell_rejection(&step, out) {
        FAILED
    } else {
        0
    })
}

/// Warns about amounts that hosts do not enforce.
pub(super) fn tell_warnings(step: &StepView, out: Out) {
    for warning in &step.warnings {
        out.warning(&format!("{}: {}", safe(&step.id), safe(warning)));
    }
}

/// Reports why a step was rejected, if it was.
fn tell_rejection(step: &StepView, out: Out) -> bool {
    let rejected = step.state == StepState::Rejected;
    if rejected {
        out.error(&format!(
            "{} was rejected: {}",
            safe(&step.id),
            safe(&step.reason.message)
        ));
    }
    rejected
}

/// Result of one step of several.
#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Step(Box<StepView>),
    Error(ErrorBody),
}

fn submit_many(client: &Client, requests: Vec<StepRequest>, out: Out) -> Result<u8, Failure> {
    let mut outcomes = Vec::new();
    for batch in requests.chunks(MAX_BATCH_STEPS) {
        let call = || client.submit_batch(batch.to_vec());
        let view = client.keep_trying(RetryLimit::CHANGE, outage_note(out), call)?;
        outcomes.extend(view.results.into_iter().map(|item| match item {
            BatchItem::Step(step) => Outcome::Step(step),
            BatchItem::Error(error) => Outcome::Error(error),
        }));
    }
    let mut failed = false;
    for (i, outcome) in outcomes.iter().enumerate() {
        failed |= tell_outcome(i + 1, outcome, out)?;
    }
    if !out.format().is_line_by_line() {
        show::items(&outcomes, out)?;
    }
    Ok(if failed { FAILED } else { 0 })
}

fn tell_outcome(document: usize, outcome: &Outcome, out: Out) -> Result<bool, Failure> {
    match outcome {
        Outcome::Step(step) => {
            if out.format().is_line_by_line() {
                show::one(step.as_ref(), out, |step| safe(&step.id))?;
            }
            tell_warnings(step, out);
            Ok(tell_rejection(step, out))
        }
        Outcome::Error(body) => {
            out.error(&format!(
                "document {document}: {}",
                safe(&body.error.message)
            ));
            Ok(true)
        }
    }
}
