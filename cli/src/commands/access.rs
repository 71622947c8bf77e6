//! `sluice api-token` and `sluice auth`: API tokens, and the caller's own rights.

use sluice_common::api::{ApiTokenCreated, ApiTokenRequest, ApiTokenView, WhoAmIView};

use super::{outage_note, submit};
use crate::args::{
    ApiTokenArgs, ApiTokenCommand, ApiTokenCreateArgs, AuthArgs, AuthCommand, Format,
};
use crate::client::{Client, RetryLimit};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::render::access::{grant, lifetime};
use crate::render::safe;
use crate::show;

/// Runs `sluice api-token`.
pub(crate) fn api_token(client: &Client, args: ApiTokenArgs, out: Out) -> Result<u8, Failure> {
    match args.command {
        ApiTokenCommand::Create(args) => create(client, args, out),
        ApiTokenCommand::List => {
            let list = || client.api_tokens();
            let tokens: Vec<ApiTokenView> =
                client.keep_trying(RetryLimit::READ, outage_note(out), list)?;
            if tokens.is_empty() && out.format().is_text() {
                out.progress("no api-tokens");
                return Ok(0);
            }
            show::list(&tokens, out)?;
            Ok(0)
        }
        ApiTokenCommand::Delete { names } => super::delete::api_tokens(client, &names, out),
    }
}

fn create(client: &Client, args: ApiTokenCreateArgs, out: Out) -> Result<u8, Failure> {
    let made = client.create_api_token(&ApiTokenRequest {
        name: args.name,
        roles: args.role,
        pools: args.pool,
        subjects: args.subject,
        user: args.user,
        ttl: args.ttl,
    })?;
    match out.format() {
        Format::Table | Format::Wide => {
            let ApiTokenCreated { token, secret } = &made;
            out.progress(&format!(
                "api-token/{} made, {}; its secret is shown this once:",
                safe(&token.name),
                lifetime(token)
            ));
            out.result(&format!("{}\n", safe(secret)))?;
        }
        Format::Json | Format::Yaml => show::value(&made, out)?,
        Format::Name => out.result(&format!("api-token/{}\n", safe(&made.token.name)))?,
    }
    Ok(0)
}

/// Runs `sluice auth`.
pub(crate) fn auth(client: &Client, args: AuthArgs, out: Out) -> Result<u8, Failure> {
    match args.command {
        AuthCommand::Whoami => {
            let who = client.keep_trying(RetryLimit::READ, outage_note(out), || client.whoami())?;
            match out.format() {
                Format::Json | Format::Yaml => show::value(&who, out)?,
                Format::Name => out.result(&format!("{}\n", safe(&who.who)))?,
                Format::Table | Format::Wide => out.result(&words(&who))?,
            }
            Ok(0)
        }
        AuthCommand::CanI {
            verb,
            resource,
            pool,
            subject,
        } => {
            // Steps submitted by `run` belong to this subject by default.
            let submits = verb == "create" && matches!(&*resource, "steps" | "step");
            let subject = match subject {
                None if submits => submit::own_subject(client, out)?,
                subject => subject,
            };
            let ask = || client.can_i(&verb, &resource, pool.as_deref(), subject.as_deref());
            let can = client.keep_trying(RetryLimit::READ, outage_note(out), ask)?;
            match out.format() {
                Format::Json | Format::Yaml => show::value(&can, out)?,
                Format::Table | Format::Wide | Format::Name => {
                    out.result(if can.allowed { "yes\n" } else { "no\n" })?;
                    if let Some(why) = &can.why {
                        out.progress(&safe(why));
                    }
                }
            }
            Ok(if can.allowed { 0 } else { FAILED })
        }
    }
}

fn words(who: &WhoAmIView) -> String {
    let mut lines = vec![safe(&who.who)];
    lines.extend(
        who.user
            .iter()
            .map(|user| format!("submits as user {}", safe(user))),
    );
    if who.unbounded {
        lines.push("may do everything".to_owned());
    } else if who.grants.is_empty() {
        lines.push("has no role".to_owned());
    }
    lines.extend(who.grants.iter().map(|it| format!("has {}", grant(it))));
    lines.extend(who.unfilled.iter().map(|it| {
        let roles: Vec<String> = it.roles.iter().map(ToString::to_string).collect();
        let (roles, subject, why) = (
            roles.join(", "),
            safe(&it.subject.to_string()),
            safe(&it.why),
        );
        format!("does not have {roles} (subjects {subject}): {why}")
    }));
    lines.extend(
        who.submits_for
            .iter()
            .map(|it| format!("submits for subject {}", safe(it))),
    );
    lines.extend(who.expires_at.map(|end| format!("until {end}")));
    lines.join("\n") + "\n"
}
