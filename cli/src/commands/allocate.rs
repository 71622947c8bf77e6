//! `sluice allocate`, `sluice renew` and `sluice release`. With a program, `allocate` is its holder: it renews the allocation
//! while the program runs, tells the program to end if the allocation is taken back, and releases it at the end.

mod holder;

use sluice_common::allocation::{AllocationState, DEFAULT_LEASE, RenewalRequest};
use sluice_common::api::StepView;
use sluice_common::request::{FieldError, StepRequest};
use sluice_common::time::Span;

use super::{outage_note, submit};
use crate::args::{AllocationArgs, ReleaseArgs, RenewalArgs};
use crate::client::{Client, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::allocation::summary;
use crate::render::safe;
use crate::request_builder::{self, Defaults};
use crate::show;

pub(crate) fn run(client: &Client, args: AllocationArgs, out: Out) -> Result<u8, Failure> {
    let lease = args.lease.unwrap_or(DEFAULT_LEASE);
    let mut request = requested(client, &args, lease)?;
    submit::fill_subject(client, std::slice::from_mut(&mut request), out)?;
    if args.command.is_empty() {
        let call = || client.allocate(&request);
        let step = client.keep_trying(RetryLimit::CHANGE, outage_note(out), call)?;
        check_granted(&step)?;
        show::one(&step, out, |step| safe(&step.id))?;
        return Ok(0);
    }
    check_is_new(client, args.step.id.as_deref(), out)?;
    holder::hold(client, &request, lease, &args.command, out)
}

/// Fails if there is a step of a chosen id: this command would release what another one holds.
fn check_is_new(client: &Client, id: Option<&str>, out: Out) -> Result<(), Failure> {
    let Some(id) = id else { return Ok(()) };
    let known = client.keep_trying(RetryLimit::READ, outage_note(out), || client.step(id));
    let id = safe(id);
    match known {
        Err(error) if error.status() == Some(404) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Failure::Failed(format!(
            "{id} is there already: choose another --id, or run programs inside it with `sluice run --in {id} -- CMD`"
        ))),
    }
}

fn requested(client: &Client, args: &AllocationArgs, lease: Span) -> Result<StepRequest, Failure> {
    let defaults = Defaults::of(&client.context().file);
    let flags = StepRequest {
        lease: Some(lease.to_string()),
        reclaim_tolerance: args.reclaim_tolerance,
        ..request_builder::layer(args.step.clone())?
    };
    let below = StepRequest::default();
    let of_flags = |e: &FieldError| Failure::Usage(e.to_string());
    request_builder::settle(flags, below, &defaults, of_flags)
}

/// Fails if an allocation has ended, with the reason.
fn check_granted(step: &StepView) -> Result<(), Failure> {
    let state = step.allocation.as_ref().map(|it| it.state);
    match state {
        Some(AllocationState::Queued | AllocationState::Allocated) => Ok(()),
        _ => Err(Failure::Failed(format!(
            "{} was {}: {}",
            safe(&step.id),
            state.map_or_else(|| step.state.to_string(), |state| state.to_string()),
            safe(&step.reason.message)
        ))),
    }
}

pub(crate) fn renew(client: &Client, args: &RenewalArgs, out: Out) -> Result<u8, Failure> {
    let request = RenewalRequest {
        state: args.state,
        lease: args.lease.map(|lease| lease.to_string()),
    };
    let call = |id: &str| client.renew(id, &request);
    let step = client.for_step(&args.allocation, call)?;
    show::one(&step, out, line)?;
    Ok(0)
}

/// One line on an allocation for people.
fn line(step: &StepView) -> String {
    let state = step.allocation.as_ref().map(summary);
    format!("{}: {}", safe(&step.id), state.unwrap_or_default())
}

pub(crate) fn release(client: &Client, args: &ReleaseArgs, out: Out) -> Result<u8, Failure> {
    for allocation in &args.allocations {
        let call = |id: &str| client.release(id, args.grace);
        let step = client.for_step(allocation, call)?;
        show::one(&step, out, line)?;
    }
    Ok(0)
}
