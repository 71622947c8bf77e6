//! `sluice token` and `sluice revoke`: join tokens of hosts, and revocation of nodes.

use sluice_common::api::{JoinTokenRequest, JoinTokenView};

use super::cordon::refusal;
use super::outage_note;
use crate::args::{RevokeArgs, TokenAction, TokenArgs, TokenCreateArgs};
use crate::client::{Client, RetryLimit};
use crate::failure::{FAILED, Failure};
use crate::out::Out;
use crate::{render, show};

/// Runs `sluice token`.
pub(crate) fn run(client: &Client, args: TokenArgs, out: Out) -> Result<u8, Failure> {
    match args.action {
        TokenAction::Create(args) => create(client, args, out),
        TokenAction::List => list(client, out),
        TokenAction::Revoke { tokens } => revoke_tokens(client, &tokens, out),
    }
}

/// Prints the line alone to stdout, for scripts; the explanation goes to stderr.
fn create(client: &Client, args: TokenCreateArgs, out: Out) -> Result<u8, Failure> {
    let request = JoinTokenRequest {
        pool: args.pool,
        ttl: Some(args.ttl.to_string()),
        uses: Some(args.uses),
        node: args.node,
        labels: args.labels.into_iter().collect(),
        addresses: args.addresses,
    };
    let made = client.make_join_token(&request)?;
    if !out.format().is_text() {
        show::value(&made, out)?;
        return Ok(0);
    }
    let token = &made.token;
    let hosts = match (&token.node, token.uses) {
        (Some(node), _) => format!("node {}", render::safe(node)),
        (None, 1) => "one host".to_owned(),
        (None, uses) => format!("{uses} hosts"),
    };
    let into = match &token.pool {
        Some(pool) => format!("pool {}", render::safe(pool)),
        None => "the pool of its config".to_owned(),
    };
    out.progress(&format!(
        "token {} lets {hosts} into {into} until {}\n\
         on the host run `sluice-agent join` and paste this line, which holds a secret and is shown this once:",
        render::safe(&token.id),
        token.expires_at
    ));
    out.result(&format!("{}\n", render::safe(&made.line)))?;
    Ok(0)
}

/// Lists join tokens, like `sluice get tokens`.
pub(crate) fn list(client: &Client, out: Out) -> Result<u8, Failure> {
    let all = || client.join_tokens();
    let tokens: Vec<JoinTokenView> = client.keep_trying(RetryLimit::READ, outage_note(out), all)?;
    if tokens.is_empty() && out.format().is_text() {
        out.progress("no tokens");
        return Ok(0);
    }
    show::list(&tokens, out)?;
    Ok(0)
}

fn revoke_tokens(client: &Client, tokens: &[String], out: Out) -> Result<u8, Failure> {
    let mut code = 0;
    for token in tokens {
        let call = || client.revoke_join_token(token);
        match client.keep_trying(RetryLimit::CHANGE, outage_note(out), call) {
            Ok(()) => out.progress(&format!("token {} revoked", render::safe(token))),
            Err(error) => {
                code = FAILED;
                out.error(&error.to_string());
            }
        }
    }
    Ok(code)
}

/// Runs `sluice revoke`.
pub(crate) fn revoke(client: &Client, args: &RevokeArgs, out: Out) -> Result<u8, Failure> {
    let mut code = 0;
    let mut views = Vec::new();
    for name in &args.names {
        let call = || client.revoke_node(name);
        match client.keep_trying(RetryLimit::CHANGE, outage_note(out), call) {
            Ok(Some(view)) => views.push(view),
            Ok(None) => out.progress(&format!("{} may not link any more", render::safe(name))),
            Err(error) => {
                code = FAILED;
                out.error(&refusal(client, name, &error));
            }
        }
    }
    show::each(&views, out, |node| {
        format!(
            "{} has no access any more; `sluice token create --node {}` lets it in again",
            render::safe(&node.name),
            render::safe(&node.name)
        )
    })?;
    Ok(code)
}
