//! `sluice describe`: all details of one thing.

use jiff::Timestamp;
use sluice_common::api::{
    NodeView, PoolView, RoleView, ServiceView, StepFilter, StepView, TemplateView, ValidationView,
};
use sluice_common::state::StepState;

use super::get::{Gettable, explained};
use super::outage_note;
use crate::args::{DescribeArgs, DescribeKind, Format};
use crate::client::{ApiError, Client, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::safe;
use crate::{render, show};

/// Running and queued steps shown in the description of a pool, of each.
const SHOWN_STEPS: usize = 20;

pub(crate) fn run(client: &Client, args: &DescribeArgs, out: Out) -> Result<u8, Failure> {
    let now = Timestamp::now();
    let kind = args.kind.name();
    let prefix = format!("{kind}/");
    let name = args.name.strip_prefix(&prefix).unwrap_or(&args.name);
    match args.kind {
        DescribeKind::Step => show::<StepView>(client, name, out, |step| {
            render::step::describe(step, now, out)
        }),
        DescribeKind::Node => {
            let node = read::<NodeView>(client, name, out)?;
            let steps = if_text(out, || steps_on(client, &node, out))?;
            show::one(&node, out, |node| {
                render::node::describe(node, &steps, now, out)
            })?;
            Ok(0)
        }
        DescribeKind::Platform => {
            let (pool, name) = of_pool(name)?;
            let read = || client.platform(pool, name);
            let platform = client.keep_trying(RetryLimit::READ, outage_note(out), read)?;
            let nodes = if_text(out, || Ok(client.nodes_of(pool)?))?;
            match out.format() {
                Format::Table | Format::Wide => {
                    out.result(&render::platform::describe(&platform, &nodes, out))?;
                }
                Format::Json | Format::Yaml => show::value(&platform, out)?,
                Format::Name => {
                    out.result(&format!("platform/{}/{}\n", safe(pool), safe(name)))?;
                }
            }
            Ok(0)
        }
        DescribeKind::Template => {
            let template = read::<TemplateView>(client, name, out)?;
            let text = render::template::describe(&template)?;
            show::one(&template, out, |_| text)?;
            Ok(0)
        }
        DescribeKind::Role => show::<RoleView>(client, name, out, render::access::role),
        DescribeKind::Pool => {
            let pool = read::<PoolView>(client, name, out)?;
            let nodes = if_text(out, || Ok(client.nodes_of(&pool.name)?))?;
            let policies = || client.policies(&pool.name);
            let policies = if_text(out, || {
                Ok(client.keep_trying(RetryLimit::READ, outage_note(out), policies)?)
            })?;
            let queue = || client.queue(&pool.name, SHOWN_STEPS);
            let queue = if_text(out, || {
                Ok(client.keep_trying(RetryLimit::READ, outage_note(out), queue)?)
            })?;
            let running = || running_in(client, &pool);
            let running = if_text(out, || {
                Ok(client.keep_trying(RetryLimit::READ, outage_note(out), running)?)
            })?;
            show::one(&pool, out, |pool| {
                let steps = (&running[..], &queue[..]);
                render::pool::describe(pool, &nodes, &policies, steps, now, out)
            })?;
            Ok(0)
        }
        DescribeKind::Service => show::<ServiceView>(client, name, out, render::service::describe),
        DescribeKind::Validation => {
            show::<ValidationView>(client, name, out, render::validation::describe)
        }
    }
}

/// Returns the first steps that hold resources of a pool, or are being stopped there.
fn running_in(client: &Client, pool: &PoolView) -> Result<Vec<StepView>, ApiError> {
    let states = StepState::ALL.into_iter();
    let states = states.filter(|state| !state.is_terminal() && *state != StepState::Queued);
    let states: Vec<&str> = states.map(StepState::as_str).collect();
    let filter = StepFilter {
        pool: Some(pool.name.clone()),
        state: Some(states.join(",")),
        parts: Some("true".to_owned()),
        ..StepFilter::default()
    };
    client.first_steps(&filter, SHOWN_STEPS)
}

/// Splits a platform's name into pool and platform.
fn of_pool(name: &str) -> Result<(&str, &str), Failure> {
    name.split_once('/').ok_or_else(|| {
        Failure::Usage(format!(
            "`{}` is not a platform of a pool: write POOL/PLATFORM, as `sluice get platforms -o name` does",
            render::safe(name)
        ))
    })
}

/// Reads what only the text format shows.
fn if_text<T>(out: Out, read: impl FnOnce() -> Result<Vec<T>, Failure>) -> Result<Vec<T>, Failure> {
    if !out.format().is_text() {
        return Ok(Vec::new());
    }
    match read() {
        // A caller may see the thing without the right to see what is around it.
        Err(Failure::Api(error)) if error.status() == Some(403) => Ok(Vec::new()),
        read => read,
    }
}

/// Returns the steps that hold resources of a node, if they are still remembered.
pub(super) fn steps_on(
    client: &Client,
    node: &NodeView,
    out: Out,
) -> Result<Vec<StepView>, Failure> {
    if node.steps.is_empty() {
        return Ok(Vec::new());
    }
    let filter = StepFilter {
        node: Some(node.name.clone()),
        ..StepFilter::default()
    };
    let read = || client.steps(&filter);
    let mut steps = client.keep_trying(RetryLimit::READ, outage_note(out), read)?;
    steps.retain(|step| node.steps.contains(&step.id));
    Ok(steps)
}

fn show<T: Gettable>(
    client: &Client,
    name: &str,
    out: Out,
    text: impl FnOnce(&T) -> String,
) -> Result<u8, Failure> {
    show::one(&read::<T>(client, name, out)?, out, text)?;
    Ok(0)
}

fn read<T: Gettable>(client: &Client, name: &str, out: Out) -> Result<T, Failure> {
    let fetch = || T::one(client, name);
    let found = client.keep_trying(RetryLimit::READ, outage_note(out), fetch);
    found.map_err(|error| {
        if error.status() == Some(404) {
            Failure::Failed(explained::<T>(client, name, &error))
        } else {
            error.into()
        }
    })
}
