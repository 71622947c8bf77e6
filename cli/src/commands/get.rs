//! `sluice get`: lists of steps, nodes, pools and other things, or some of them by name, once or with `--watch`.

mod access;
mod allocations;
mod columns;
mod events;
mod join_tokens;
mod kinds;
mod labels;
mod services;
mod steps;
mod watch;

use sluice_common::api::{
    ApiTokenView, BindingView, ClusterView, EndpointView, JoinTokenView, NodeView, PolicyView,
    PoolView, RoleView, ServiceView, StepFilter, StepView, TemplateView, TopologyView,
    ValidationView,
};
use sluice_common::step_names::{StepNamesError, in_list, is_pattern};

use super::outage_note;
use super::selection::add_mine;
use crate::args::{GetArgs, GetKind};
use crate::client::{ApiError, Client, RetryLimit};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::allocation::ListedAllocation;
use crate::render::listed::Listed;
use crate::render::platform::PoolPlatform;
use crate::show;

pub(crate) use kinds::Gettable;

pub(crate) fn run(client: &Client, args: &GetArgs, out: Out) -> Result<u8, Failure> {
    let mut args = args.clone();
    for name in &mut args.names {
        let bare = args.kind.names().iter().find_map(|kind| {
            let rest = name.strip_prefix(kind)?;
            rest.strip_prefix('/').map(str::to_owned)
        });
        *name = bare.unwrap_or_else(|| name.clone());
    }
    if args.kind == GetKind::Steps && args.names.iter().any(|name| is_pattern(name)) {
        let names: Vec<String> = args.names.drain(..).map(|name| in_list(&name)).collect();
        let names = names.join(",").parse();
        args.name = Some(names.map_err(|error: StepNamesError| Failure::Usage(error.to_string()))?);
    }
    kinds::check(&args)?;
    columns::check(&args, out)?;
    if args.mine {
        let mut own = StepFilter::default();
        add_mine(client, &mut own)?;
        args.subject = own.subject;
        args.submitted_by = own.submitted_by;
    }
    if matches!(args.kind, GetKind::Cluster | GetKind::Topology) {
        // There is only one, without a name.
        args.names = vec![args.kind.plural().to_owned()];
    }
    if args.kind == GetKind::Steps && args.watch {
        // Events name steps by id.
        for name in &mut args.names {
            if let Ok(step) = client.step_called(name) {
                *name = step.id;
            }
        }
    }
    let out = out.with_labels(args.show_labels);
    match args.kind {
        GetKind::Steps => get::<StepView>(client, &args, out),
        GetKind::Allocations => get::<ListedAllocation>(client, &args, out),
        GetKind::Services => get::<ServiceView>(client, &args, out),
        GetKind::Endpoints => get::<EndpointView>(client, &args, out),
        GetKind::Nodes => get::<NodeView>(client, &args, out),
        GetKind::Pools => get::<PoolView>(client, &args, out),
        GetKind::Policies => get::<PolicyView>(client, &args, out),
        GetKind::Platforms => get::<PoolPlatform>(client, &args, out),
        GetKind::Templates => get::<TemplateView>(client, &args, out),
        GetKind::Cluster => get::<ClusterView>(client, &args, out),
        GetKind::Topology => get::<TopologyView>(client, &args, out),
        GetKind::Validations => get::<ValidationView>(client, &args, out),
        GetKind::Roles => get::<RoleView>(client, &args, out),
        GetKind::Bindings => get::<BindingView>(client, &args, out),
        GetKind::ApiTokens => get::<ApiTokenView>(client, &args, out),
        GetKind::Tokens => get::<JoinTokenView>(client, &args, out),
        GetKind::Labels => labels::run(client, &args, out),
        GetKind::Events => events::run(client, &args, out),
    }
}

fn get<T: Gettable>(client: &Client, args: &GetArgs, out: Out) -> Result<u8, Failure> {
    if args.watch {
        return watch::run::<T>(client, args, out);
    }
    let found = find::<T>(client, args, out)?;
    if found.items.is_empty() {
        kinds::check_found(client, args)?;
    }
    show_found(&found, args, out)
}

/// Found items, and whether a named one is missing.
struct GetResult<T> {
    items: Vec<T>,
    missing: bool,
}

fn find<T: Gettable>(client: &Client, args: &GetArgs, out: Out) -> Result<GetResult<T>, Failure> {
    let mut found = GetResult {
        items: Vec::new(),
        missing: false,
    };
    if args.names.is_empty() {
        let all = || T::listed(client, args, out);
        found.items = client.keep_trying(RetryLimit::READ, outage_note(out), all)?;
    }
    for name in &args.names {
        match client.keep_trying(RetryLimit::READ, outage_note(out), || T::one(client, name)) {
            Ok(item) => found.items.push(item),
            Err(error) if error.status() == Some(404) => {
                found.missing = true;
                out.error(&explained::<T>(client, name, &error));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Returns the error for an unknown name, with a similar one.
pub(crate) fn explained<T: Gettable>(client: &Client, name: &str, error: &ApiError) -> String {
    format!("{error}{}", kinds::similar_name::<T>(client, name))
}

fn show_found<T: Listed>(found: &GetResult<T>, args: &GetArgs, out: Out) -> Result<u8, Failure> {
    let named_one = args.names.len() == 1;
    if columns::are_chosen(args, out) {
        columns::show(&found.items, args, out)?;
        return Ok(if found.missing { FAILED } else { 0 });
    }
    match found.items.as_slice() {
        [only] if named_one => show::row(only, out)?,
        [] if found.missing && (named_one || out.format().is_text()) => {}
        [] if out.format().is_text() => out.progress(&format!("no {}", args.kind.plural())),
        items => show::list(items, out)?,
    }
    Ok(if found.missing { FAILED } else { 0 })
}
