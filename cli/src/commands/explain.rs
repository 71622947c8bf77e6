//! `sluice explain`: why a step or a service is in its state, and what would help.

use jiff::Timestamp;
use serde::Serialize;
use sluice_common::api::{ExplainView, ServiceView, StepView};

use super::get::explained;
use super::outage_note;
use crate::args::{ExplainArgs, Format};
use crate::client::{ApiError, Client, RetryLimit};
use crate::failure::Failure;
use crate::out::Out;
use crate::render::explain::not_ready;
use crate::render::{self, safe};
use crate::show;

/// Most replicas of a service that are explained.
const MAX_EXPLAINED: usize = 5;

/// Explanation of the state of a step or a service.
#[expect(clippy::large_enum_variant, reason = "there is one in a call")]
enum Explanation {
    Step(ExplainView),
    Service(ServiceExplanation),
}

/// A service, with explanations of its first replicas that are not ready.
#[derive(Debug, Serialize)]
struct ServiceExplanation {
    service: ServiceView,
    replicas: Vec<ExplainView>,
}

pub(crate) fn run(client: &Client, args: &ExplainArgs, out: Out) -> Result<u8, Failure> {
    let read = || {
        let of_step = |id: &str| client.explain(id).map(Explanation::Step);
        client.for_step_or_service(&args.step, of_step, |service| {
            explain_service(client, service).map(Explanation::Service)
        })
    };
    let found = client.keep_trying(RetryLimit::READ, outage_note(out), read);
    let name = args.step.rsplit('/').next().unwrap_or_default();
    let found = found.map_err(|error| match error.code() {
        Some("unknown_service") => Failure::Failed(explained::<ServiceView>(client, name, &error)),
        _ if error.status() == Some(404) => {
            Failure::Failed(explained::<StepView>(client, name, &error))
        }
        _ => error.into(),
    })?;
    match found {
        Explanation::Step(view) => {
            let text = || render::explain::explain(&view, Timestamp::now(), out);
            tell(&view, text, format!("step/{}", safe(&view.id)), out)
        }
        Explanation::Service(it) => {
            let text =
                || render::explain::service(&it.service, &it.replicas, Timestamp::now(), out);
            tell(
                &it,
                text,
                format!("service/{}", safe(&it.service.name)),
                out,
            )
        }
    }
}

/// Prints an explanation in the wanted form.
fn tell(
    view: &impl Serialize,
    text: impl Fn() -> String,
    name: String,
    out: Out,
) -> Result<u8, Failure> {
    match out.format() {
        Format::Table | Format::Wide => out.result(&text())?,
        Format::Json | Format::Yaml => show::value(view, out)?,
        Format::Name => out.result(&name)?,
    }
    Ok(0)
}

/// Explains the first replicas that are not ready and not draining. One that ends meanwhile is left out.
fn explain_service(client: &Client, service: ServiceView) -> Result<ServiceExplanation, ApiError> {
    let mut replicas = Vec::new();
    for replica in not_ready(&service).take(MAX_EXPLAINED) {
        match client.explain(&replica.id) {
            Err(error) if error.may_be_name() => {}
            explanation => replicas.push(explanation?),
        }
    }
    Ok(ServiceExplanation { service, replicas })
}
