//! `sluice delete`: forgets lost hosts and ended steps, each even if others fail, and deletes pools and policies, all or
//! none.

use std::path::Path;

use sluice_common::api::{ApplyRequest, DeleteDocument, NodeView};

use super::apply::{self, ChangeOptions, Report};
use super::change_many;
use super::cordon::change;
use super::services as service_files;
use crate::args::{ChangeFlags, DeleteArgs, DeleteKind, StepSelector};
use crate::client::{ApiError, Client, StepAction};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::{render, show};

pub(crate) fn run(client: &Client, args: &DeleteArgs, out: Out) -> Result<u8, Failure> {
    let is_of_steps = args.kind == Some(DeleteKind::Step);
    if !is_of_steps && (args.filters.are_set() || args.yes) {
        return Err(Failure::Usage(
            "filters and --yes are for steps: write sluice delete step before them".to_owned(),
        ));
    }
    if let Some(file) = &args.file {
        return of_file(client, args, file, out);
    }
    match args.kind {
        Some(DeleteKind::Step) => steps(client, args, out),
        None | Some(DeleteKind::Node) if args.dry_run => Err(Failure::Usage(
            "--dry-run is for steps, pools, platforms and policies: leave it out here".to_owned(),
        )),
        None | Some(DeleteKind::Node) => nodes(client, args, out),
        Some(DeleteKind::Service) if args.dry_run || args.force => Err(Failure::Usage(
            "--dry-run and --force are for what others use: leave them out here".to_owned(),
        )),
        Some(DeleteKind::Service) => services(client, &args.names, out),
        Some(DeleteKind::ApiToken) if args.dry_run || args.force => Err(Failure::Usage(
            "--dry-run and --force are for what others use: leave them out here".to_owned(),
        )),
        Some(DeleteKind::ApiToken) => api_tokens(client, &args.names, out),
        Some(DeleteKind::Role) => {
            let names = args.names.iter().cloned();
            let roles = names.map(|name| DeleteDocument::Role { name });
            terms(client, args, roles.collect(), out)
        }
        Some(DeleteKind::Binding) => {
            let names = args.names.iter().cloned();
            let bindings = names.map(|name| DeleteDocument::Binding { name });
            terms(client, args, bindings.collect(), out)
        }
        Some(DeleteKind::Pool) => {
            let names = args.names.iter().cloned();
            let pools = names.map(|name| DeleteDocument::Pool { name });
            terms(client, args, pools.collect(), out)
        }
        Some(DeleteKind::Template) => {
            let names = args.names.iter().cloned();
            let templates = names.map(|name| DeleteDocument::Template { name });
            terms(client, args, templates.collect(), out)
        }
        Some(DeleteKind::Policy) => {
            let policies = args.names.iter().map(|name| policy(name));
            terms(client, args, policies.collect::<Result<_, _>>()?, out)
        }
        Some(DeleteKind::Validation) => {
            let names = args.names.iter().cloned();
            let documents = names.map(|name| DeleteDocument::Validation { name });
            terms(client, args, documents.collect(), out)
        }
        Some(DeleteKind::Platform) => {
            let platforms = args.names.iter().map(|name| platform(name));
            terms(client, args, platforms.collect::<Result<_, _>>()?, out)
        }
    }
}

/// Deletes what the documents of a file name: first the services, which may run in pools of the file, and then the rest,
/// all of it or none.
fn of_file(client: &Client, args: &DeleteArgs, file: &Path, out: Out) -> Result<u8, Failure> {
    let (deletes, services) = apply::deletes(file, out)?;
    let options = options(args);
    let mut report = Report::new(options, out);
    service_files::delete(client, &services, options.dry_run, &mut report, out)?;
    if report.has_failed() && !deletes.is_empty() {
        report.failed("nothing else of the file was deleted, because a service was not");
        return report.end();
    }
    if !deletes.is_empty() || services.is_empty() {
        let (delete, places): (Vec<_>, Vec<_>) = deletes.into_iter().unzip();
        let request = ApplyRequest {
            delete,
            ..ApplyRequest::default()
        };
        match apply::changed(client, &request, options, out) {
            Ok(made) => report.changes(made)?,
            Err(failure) if services.is_empty() || options.dry_run => {
                return Err(apply::placed(failure, &places));
            }
            Err(failure) => {
                let failure = apply::placed(failure, &places);
                let services = service_files::names(&services);
                report.failed(&format!(
                    "{failure}; of the file only {services} was deleted"
                ));
            }
        }
    }
    report.end()
}

/// Deletes each step that is listed even if others fail.
fn steps(client: &Client, args: &DeleteArgs, out: Out) -> Result<u8, Failure> {
    if args.force {
        return Err(Failure::Usage(
            "--force is not for steps: `sluice cancel` ends them, and then they can be deleted"
                .to_owned(),
        ));
    }
    let wanted = StepSelector {
        steps: args.names.clone(),
        filters: args.filters.clone(),
    };
    if args.dry_run || !wanted.is_list() {
        let (yes, dry_run) = (args.yes, args.dry_run);
        let flags = ChangeFlags { yes, dry_run };
        return change_many::run(client, StepAction::Delete, &wanted, flags, out);
    }
    each(&wanted.steps, "step", out, |name| {
        client.for_step(name, |id| client.delete_step(id))
    })
}

/// Deletes each thing of a kind even if others fail.
fn each(
    names: &[String],
    kind: &str,
    out: Out,
    delete: impl Fn(&str) -> Result<(), ApiError>,
) -> Result<u8, Failure> {
    let mut code = 0;
    for name in names {
        let shown = render::safe(name);
        match delete(name) {
            Ok(()) => out.result(&format!("{kind}/{shown} deleted\n"))?,
            Err(error) => {
                code = FAILED;
                out.error(&format!("{shown}: {error}"));
            }
        }
    }
    Ok(code)
}

fn platform(name: &str) -> Result<DeleteDocument, Failure> {
    let Some((pool, name)) = name.split_once('/') else {
        return Err(Failure::Usage(format!(
            "`{}` is not a platform of a pool: write POOL/PLATFORM, as `sluice get platforms -o name` does",
            render::safe(name)
        )));
    };
    let (pool, name) = (pool.to_owned(), name.to_owned());
    Ok(DeleteDocument::Platform { pool, name })
}

fn services(client: &Client, names: &[String], out: Out) -> Result<u8, Failure> {
    each(names, "service", out, |name| client.delete_service(name))
}

pub(super) fn api_tokens(client: &Client, names: &[String], out: Out) -> Result<u8, Failure> {
    each(names, "api-token", out, |name| {
        client.revoke_api_token(name)
    })
}

fn policy(name: &str) -> Result<DeleteDocument, Failure> {
    let Some((pool, subject)) = name.split_once('/') else {
        return Err(Failure::Usage(format!(
            "`{}` is not a policy: write POOL/SUBJECT, as `sluice get policies -o name` does",
            render::safe(name)
        )));
    };
    let (pool, subject) = (pool.to_owned(), subject.to_owned());
    Ok(DeleteDocument::Policy { pool, subject })
}

/// Deletes all of them, or none.
fn terms(
    client: &Client,
    args: &DeleteArgs,
    delete: Vec<DeleteDocument>,
    out: Out,
) -> Result<u8, Failure> {
    let request = ApplyRequest {
        delete,
        ..ApplyRequest::default()
    };
    apply::make(client, &request, options(args), out)
}

fn options(args: &DeleteArgs) -> ChangeOptions {
    ChangeOptions {
        dry_run: args.dry_run,
        force: args.force,
    }
}

fn nodes(client: &Client, args: &DeleteArgs, out: Out) -> Result<u8, Failure> {
    let (views, code) = change(client, &args.names, out, |name| {
        delete_node(client, name, args.force)
    });
    show::each(&views, out, line)?;
    Ok(code)
}

/// Deletes a node; returns it as it was last, or as it is while it must be kept.
fn delete_node(client: &Client, name: &str, force: bool) -> Result<NodeView, ApiError> {
    let last = client.node(name)?;
    let kept = client.delete_node(name, force)?;
    Ok(kept.unwrap_or(NodeView {
        leaving: false,
        ..last
    }))
}

fn line(node: &NodeView) -> String {
    let name = render::safe(&node.name);
    if !node.leaving {
        return format!("{name} deleted");
    }
    let steps: Vec<String> = node.steps.iter().map(|step| render::safe(step)).collect();
    format!(
        "{name} is forgotten as soon as it is lost, for it may still run {}",
        steps.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::node::tests::node;

    #[test]
    fn what_must_be_kept_for_a_while_is_said() {
        let mut node = node();
        assert_eq!(line(&node), "gpu-1 deleted");
        node.leaving = true;
        assert_eq!(
            line(&node),
            "gpu-1 is forgotten as soon as it is lost, for it may still run k3v9"
        );
    }
}
